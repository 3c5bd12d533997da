package fusefs

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// Op is an operation that a hook is asked about.
type Op string

// Operations that change something, and reads.
const (
	Create Op = "create"
	Mkdir  Op = "mkdir"
	Write  Op = "write"
	Fsync  Op = "fsync"
	Rename Op = "rename"
	Unlink Op = "unlink"
	Read   Op = "read"
)

// Hook is called before each operation, by several goroutines at once. name is the file's, without its directory. The
// operation waits until it returns and fails with its error, which is a unix.Errno.
type Hook func(op Op, name string) error

// FS is a mounted file system.
type FS struct {
	dir  string
	dev  *os.File
	hook Hook
	done chan struct{} // closed when no request is being served any more

	mu    sync.Mutex
	nodes map[uint64]*node // guarded by mu, as are their fields
	last  uint64
}

// node is a directory or a regular file. It stays for as long as the file system.
type node struct {
	id       uint64
	mode     uint32
	name     string
	links    uint32
	data     []byte
	children map[string]*node // of a directory
}

const rootID = 1

// Mount mounts an empty file system on a directory. hook may be nil.
func Mount(dir string, hook Hook) (*FS, error) {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/fuse: %w", err)
	}
	fs := &FS{dir: dir, hook: func(Op, string) error { return nil }, done: make(chan struct{}), last: rootID}
	fs.nodes = map[uint64]*node{rootID: {id: rootID, mode: unix.S_IFDIR | 0o755, links: 2, children: map[string]*node{}}}
	opts := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd)
	if err := unix.Mount("fusefs", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, opts); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("mount on %s: %w", dir, err)
	}
	// Not before the mount: until then the device cannot be polled.
	fs.dev = os.NewFile(uintptr(fd), "/dev/fuse")
	go fs.serve()
	if err := fs.unlearnPoll(); err != nil {
		fs.Close()
		return nil, err
	}
	if hook != nil {
		fs.hook = hook
	}
	return fs, nil
}

// unlearnPoll has the kernel ask whether a file is ready, and learn that this server does not know such requests. Else
// the question would come when Go's runtime adds a file of this process to its epoll set, under a lock that the server's
// own wait needs.
func (fs *FS) unlearnPoll() error {
	name := fs.dir + "/poll"
	fd, err := unix.Open(name, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0); err != nil {
		return err
	}
	return unix.Unlink(name)
}

// Close unmounts the file system. What is still open in it gets ENOTCONN. Hooks must return.
func (fs *FS) Close() error {
	err := unix.Unmount(fs.dir, unix.MNT_DETACH)
	fs.dev.Close()
	<-fs.done
	return err
}

// serve answers requests, each in its own goroutine, until the file system is gone.
func (fs *FS) serve() {
	defer close(fs.done)
	var all sync.WaitGroup
	defer all.Wait()
	for {
		buf := make([]byte, maxWrite+4096)
		n, err := fs.dev.Read(buf)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENOENT): // ENOENT: the request was withdrawn
			continue
		case err != nil:
			return
		}
		r, ok := parse(buf[:n])
		if !ok {
			return
		}
		all.Go(func() {
			out, errno := fs.handle(r)
			if errno != noReply {
				fs.dev.Write(reply(r.unique, out, errno)) // fails when who asked was killed
			}
		})
	}
}

// handle does one request.
func (fs *FS) handle(r *request) ([]byte, unix.Errno) {
	if op, name, ok := fs.asked(r); ok {
		if err := fs.hook(op, name); err != nil {
			var errno unix.Errno
			if !errors.As(err, &errno) {
				errno = unix.EIO
			}
			return nil, errno
		}
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	n := fs.nodes[r.node]
	if n == nil && r.op != opInit {
		return nil, unix.ESTALE
	}
	switch r.op {
	case opInit:
		return initOut(r), 0
	case opForget, opBatchForget, opInterrupt:
		return nil, noReply
	case opLookup:
		if c := n.children[r.str(0)]; c != nil {
			return c.entry(), 0
		}
		return nil, unix.ENOENT
	case opGetattr:
		return n.attrOut(), 0
	case opSetattr:
		n.set(r)
		return n.attrOut(), 0
	case opOpen, opOpendir:
		return openOut(), 0
	case opCreate:
		c, errno := fs.add(n, r.str(16), unix.S_IFREG|r.u32(4)&0o7777)
		if errno != 0 {
			return nil, errno
		}
		return append(c.entry(), openOut()...), 0
	case opMkdir:
		c, errno := fs.add(n, r.str(8), unix.S_IFDIR|r.u32(0)&0o7777)
		if errno != 0 {
			return nil, errno
		}
		return c.entry(), 0
	case opUnlink, opRmdir:
		return nil, n.remove(r.str(0), r.op == opRmdir)
	case opRename, opRename2:
		return nil, fs.rename(n, r)
	case opRead:
		off := min(r.u64(8), uint64(len(n.data)))
		return slices.Clone(n.data[off:min(off+uint64(r.u32(16)), uint64(len(n.data)))]), 0
	case opWrite:
		return n.write(r)
	case opReaddir:
		return n.list(r.u64(8), int(r.u32(16))), 0
	case opStatfs:
		return statfsOut(), 0
	case opRelease, opReleasedir, opFsync, opFsyncdir, opFlush, opAccess, opDestroy:
		return nil, 0
	}
	return nil, unix.ENOSYS
}

// asked is what the hook is asked about a request.
func (fs *FS) asked(r *request) (op Op, name string, ok bool) {
	switch r.op {
	case opCreate:
		return Create, r.str(16), true
	case opMkdir:
		return Mkdir, r.str(8), true
	case opUnlink, opRmdir:
		return Unlink, r.str(0), true
	case opRename:
		return Rename, r.str(8), true
	case opRename2:
		return Rename, r.str(16), true
	case opWrite:
		op = Write
	case opRead:
		op = Read
	case opFsync, opFsyncdir:
		op = Fsync
	default:
		return "", "", false
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if n := fs.nodes[r.node]; n != nil {
		name = n.name
	}
	return op, name, true
}

func (fs *FS) add(dir *node, name string, mode uint32) (*node, unix.Errno) {
	if dir.links == 0 {
		return nil, unix.ENOENT
	}
	if dir.children[name] != nil {
		return nil, unix.EEXIST
	}
	fs.last++
	n := &node{id: fs.last, mode: mode, name: name, links: 1}
	if mode&unix.S_IFMT == unix.S_IFDIR {
		n.links, n.children = 2, map[string]*node{}
	}
	fs.nodes[n.id], dir.children[name] = n, n
	return n, 0
}

func (n *node) remove(name string, dir bool) unix.Errno {
	c := n.children[name]
	switch {
	case c == nil:
		return unix.ENOENT
	case dir && c.children == nil:
		return unix.ENOTDIR
	case !dir && c.children != nil:
		return unix.EISDIR
	case len(c.children) > 0:
		return unix.ENOTEMPTY
	}
	c.links = 0
	delete(n.children, name)
	return 0
}

func (fs *FS) rename(from *node, r *request) unix.Errno {
	at := 8
	if r.op == opRename2 {
		if r.u32(8) != 0 {
			return unix.EINVAL
		}
		at = 16
	}
	to := fs.nodes[r.u64(0)]
	old := r.str(at)
	name := r.str(at + len(old) + 1)
	c := from.children[old]
	if to == nil || c == nil {
		return unix.ENOENT
	}
	if over := to.children[name]; over != nil && over != c {
		if errno := to.remove(name, over.children != nil); errno != 0 {
			return errno
		}
	}
	delete(from.children, old)
	c.name, to.children[name] = name, c
	return 0
}

// maxFile bounds a file, for a test that goes wrong.
const maxFile = 4 << 30

func (n *node) write(r *request) ([]byte, unix.Errno) {
	off, data := r.u64(8), r.rest(40)
	if off > maxFile {
		return nil, unix.EFBIG
	}
	n.resize(max(uint64(len(n.data)), off+uint64(len(data))))
	copy(n.data[off:], data)
	return writeOut(len(data)), 0
}

func (n *node) resize(size uint64) {
	if grow := int(size) - len(n.data); grow > 0 {
		n.data = append(n.data, make([]byte, grow)...)
	}
	n.data = n.data[:size]
}

func (n *node) set(r *request) {
	const setMode, setSize = 1, 8
	valid := r.u32(0)
	if valid&setMode != 0 {
		n.mode = n.mode&unix.S_IFMT | r.u32(68)&0o7777
	}
	if valid&setSize != 0 && r.u64(16) <= maxFile {
		n.resize(r.u64(16))
	}
}

// list is a part of a directory: entries from number off on, as many as fit.
func (n *node) list(off uint64, size int) (out []byte) {
	names := slices.Sorted(maps.Keys(n.children))
	for i := off; i < uint64(len(names)); i++ {
		e := dirent(n.children[names[i]], i+1)
		if len(out)+len(e) > size {
			break
		}
		out = append(out, e...)
	}
	return out
}
