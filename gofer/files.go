package gofer

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/pkg/fsproto"
	"runsc/pkg/hostfs"
)

// maxServed bounds the sockets that the Sentry makes.
const maxServed = 32

// fileServer does operations on files for the Sentry, which is not trusted: a
// file is one that it was given, beneath a tree of its pod, a name is one
// component, and descriptors that it gets are open for data, never directories.
type fileServer struct {
	trees  *server
	fs     *hostfs.Local
	refs   *refs
	served atomic.Int32
}

func newFileServer(trees *server, procSelfFD int) *fileServer {
	return &fileServer{trees: trees, fs: hostfs.NewLocal(procSelfFD), refs: newRefs()}
}

// serve answers the calls of one socket, which it takes over, until that is
// closed. Each socket has a goroutine.
func (s *fileServer) serve(sock int) {
	defer unix.Close(sock)
	if s.served.Add(1) > maxServed {
		s.served.Add(-1)
		return
	}
	defer s.served.Add(-1)
	c := &fileCall{s: s, buf: make([]byte, fsproto.MaxFileMessage)}
	for {
		n, fds, err := fsproto.RecvFiles(sock, c.buf)
		if err != nil {
			return
		}
		if c.buf[0] == fsproto.FileChannel { // has no answer
			if len(fds) == 1 {
				go s.serve(fds[0])
			} else {
				fsproto.CloseAll(fds)
			}
			continue
		}
		c.run(c.buf[:n], fds)
		if c.out >= 0 {
			err = fsproto.SendFiles(sock, c.B, c.out)
			unix.Close(c.out)
		} else {
			err = fsproto.SendFiles(sock, c.B)
		}
		if err != nil {
			return
		}
	}
}

// fileCall is one call: the message in d, the answer in the Encoder.
type fileCall struct {
	fsproto.Encoder
	s    *fileServer
	d    fsproto.Decoder
	fds  []int // came with the message
	held []*node
	out  int // descriptor to go with the answer, or -1
	buf  []byte
}

// run carries out a message.
func (c *fileCall) run(msg []byte, fds []int) {
	c.d, c.fds, c.held, c.out = fsproto.Decoder{B: msg}, fds, c.held[:0], -1
	c.B = append(c.B[:0], 0, 0, 0, 0)
	op := c.d.U8()
	for range int(c.d.U16()) {
		c.s.refs.drop(c.d.U32())
	}
	err := c.do(op)
	for _, f := range c.held {
		c.s.refs.put(f)
	}
	fsproto.CloseAll(fds)
	if err == nil {
		return
	}
	if c.out >= 0 {
		unix.Close(c.out)
		c.out = -1
	}
	e, ok := err.(unix.Errno)
	if !ok {
		e = unix.EIO
	}
	c.B = c.B[:0]
	c.U32(uint32(e))
}

// node reads a reference; it is held until the call is done.
func (c *fileCall) node() (*node, error) {
	f, err := c.s.refs.get(c.d.U32())
	if err == nil {
		c.held = append(c.held, f)
	}
	return f, err
}

// target reads a target. A descriptor that the Sentry passes is one for data.
func (c *fileCall) target() (hostfs.Target, error) {
	passed, ref := c.d.TargetIsFD()
	if !passed {
		f, err := c.s.refs.get(ref)
		if err != nil {
			return hostfs.Target{}, err
		}
		c.held = append(c.held, f)
		return f.target(), nil
	}
	if len(c.fds) == 0 {
		return hostfs.Target{}, unix.EBADF
	}
	var st unix.Stat_t
	if err := unix.Fstat(c.fds[0], &st); err != nil {
		return hostfs.Target{}, err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFDIR:
		return hostfs.Data(c.fds[0]), nil
	}
	return hostfs.Target{}, unix.EPERM
}

// name reads a file name.
func (c *fileCall) name() (string, error) {
	s := c.d.Str()
	if c.d.Bad || !fsproto.FileName(s) {
		return "", unix.EINVAL
	}
	return s, nil
}

// nodeName reads a directory and a name in it.
func (c *fileCall) nodeName() (int, string, *node, error) {
	f, err := c.node()
	if err != nil {
		return 0, "", nil, err
	}
	name, err := c.name()
	return f.fd, name, f, err
}

// targetName reads a target and a name in it, "" for the target itself.
func (c *fileCall) targetName() (hostfs.Target, string, error) {
	t, err := c.target()
	if err != nil {
		return t, "", err
	}
	s := c.d.Str()
	if c.d.Bad || s != "" && !fsproto.FileName(s) {
		return t, "", unix.EINVAL
	}
	return t, s, nil
}

// names reads the names of a walk.
func (c *fileCall) names() ([]string, error) {
	names := c.d.Names()
	for _, s := range names {
		if !fsproto.FileName(s) {
			return nil, unix.EINVAL
		}
	}
	if c.d.Bad || len(names) == 0 || len(names) > fsproto.MaxBatch {
		return nil, unix.EINVAL
	}
	return names, nil
}

// attr reads what a new file is to be.
func (c *fileCall) attr() (*hostfs.NewAttr, error) {
	a := c.d.Attr()
	if c.d.Bad {
		return nil, unix.EINVAL
	}
	return a, nil
}

// handlers are the operations by number.
var handlers = [...]func(*fileCall) error{
	fsproto.FileAttach:      (*fileCall).attach,
	fsproto.FileClose:       func(*fileCall) error { return nil },
	fsproto.FileStat:        (*fileCall).stat,
	fsproto.FileStatWalk:    (*fileCall).statWalk,
	fsproto.FileWalk:        (*fileCall).walk,
	fsproto.FileReadlink:    (*fileCall).readlink,
	fsproto.FileStatfs:      (*fileCall).statfs,
	fsproto.FileSyncfs:      (*fileCall).syncfs,
	fsproto.FileOpen:        (*fileCall).open,
	fsproto.FileOpenAt:      (*fileCall).openAt,
	fsproto.FileOpenDir:     (*fileCall).openDir,
	fsproto.FileGetdents:    (*fileCall).getdents,
	fsproto.FileSyncDir:     (*fileCall).syncDir,
	fsproto.FileCreate:      (*fileCall).create,
	fsproto.FileTmpfile:     (*fileCall).tmpfile,
	fsproto.FileMake:        (*fileCall).make,
	fsproto.FileLink:        (*fileCall).link,
	fsproto.FileUnlink:      (*fileCall).unlink,
	fsproto.FileRename:      (*fileCall).rename,
	fsproto.FileSetAttr:     (*fileCall).setAttr,
	fsproto.FileGetxattr:    (*fileCall).getxattr,
	fsproto.FileSetxattr:    (*fileCall).setxattr,
	fsproto.FileListxattr:   (*fileCall).listxattr,
	fsproto.FileRemovexattr: (*fileCall).removexattr,
	fsproto.FileConnect:     (*fileCall).connect,
	fsproto.FileBind:        (*fileCall).bind,
	fsproto.FileInotify:     (*fileCall).inotify,
	fsproto.FileWatch:       (*fileCall).watch,
	fsproto.FileUnwatch:     (*fileCall).unwatch,
}

func (c *fileCall) do(op uint8) error {
	if int(op) >= len(handlers) || handlers[op] == nil {
		return unix.ENOSYS
	}
	if c.d.Bad {
		return unix.EINVAL
	}
	return handlers[op](c)
}

// attach opens the root of a tree.
func (c *fileCall) attach() error {
	container, index := c.d.Str(), int64(c.d.U64())
	if c.d.Bad {
		return unix.EINVAL
	}
	root, err := c.s.trees.root(container, int(index))
	if err != nil {
		return err
	}
	return c.ref(root, container)
}

// ref takes over fd and answers with a number for it.
func (c *fileCall) ref(fd int, container string) error {
	n, err := c.s.refs.add(fd, container)
	if err == nil {
		c.U32(n)
	}
	return err
}

// status appends attributes.
func (c *fileCall) status(stx *unix.Statx_t, err error) error {
	if err == nil {
		c.Stat(stx)
	}
	return err
}

// donate gives a descriptor out.
func (c *fileCall) donate(fd int, err error) error {
	if err != nil {
		return err
	}
	c.out = fd
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return unix.EISDIR
	}
	return nil
}

func (c *fileCall) stat() error {
	t, name, err := c.targetName()
	if err != nil {
		return err
	}
	var stx unix.Statx_t
	return c.status(&stx, c.s.fs.Stat(t, name, &stx))
}

func (c *fileCall) statWalk() error {
	dir, err := c.node()
	if err != nil {
		return err
	}
	names, err := c.names()
	if err != nil {
		return err
	}
	found, err := c.s.fs.StatWalk(dir.fd, names)
	c.partial(err, len(found))
	for i := range found {
		c.Stat(&found[i])
	}
	return nil
}

// partial begins the answer to a walk: the error that ended it, and how many
// components were walked.
func (c *fileCall) partial(err error, n int) {
	e, _ := err.(unix.Errno)
	c.U32(uint32(e))
	c.U16(uint16(n))
}

func (c *fileCall) walk() error {
	dir, err := c.node()
	if err != nil {
		return err
	}
	names, err := c.names()
	stat := c.d.Bool()
	if err != nil {
		return err
	}
	steps, werr := c.s.fs.Walk(dir.fd, names, stat)
	numbers := make([]uint32, 0, len(steps))
	for i := range steps {
		n, err := c.s.refs.add(steps[i].Ref, dir.container)
		if err != nil {
			for _, s := range steps[i+1:] {
				unix.Close(s.Ref)
			}
			for _, n := range numbers {
				c.s.refs.drop(n)
			}
			return err
		}
		numbers = append(numbers, n)
	}
	c.partial(werr, len(steps))
	for i := range steps {
		c.U32(numbers[i])
		if stat {
			c.Stat(&steps[i].Stat)
		}
	}
	return nil
}

func (c *fileCall) readlink() error {
	t, name, err := c.targetName()
	if err != nil {
		return err
	}
	s, err := c.s.fs.Readlink(t, name)
	c.Str(s)
	return err
}

func (c *fileCall) statfs() error {
	t, err := c.target()
	if err != nil {
		return err
	}
	var st unix.Statfs_t
	err = c.s.fs.Statfs(t, &st)
	c.B = append(c.B, abi.Bytes(&st)...)
	return err
}

func (c *fileCall) syncfs() error {
	t, err := c.target()
	if err != nil {
		return err
	}
	return c.s.fs.Syncfs(t)
}

// openMask are the flags that the Sentry may open a file with.
const openMask = unix.O_ACCMODE | unix.O_NOATIME | unix.O_DIRECT | unix.O_NONBLOCK

func (c *fileCall) open() error {
	t, err := c.target()
	if err != nil {
		return err
	}
	return c.donate(c.s.fs.Open(t, int(c.d.U32())&openMask))
}

func (c *fileCall) openAt() error {
	dir, name, _, err := c.nodeName()
	if err != nil {
		return err
	}
	flags := int(c.d.U32()) & openMask
	var stx *unix.Statx_t
	if c.d.Bool() {
		stx = &unix.Statx_t{}
	}
	if err := c.donate(c.s.fs.OpenAt(dir, name, flags, stx)); err != nil {
		return err
	}
	if stx != nil {
		c.Stat(stx)
	}
	return nil
}

func (c *fileCall) openDir() error {
	dir, err := c.node()
	if err != nil {
		return err
	}
	fd, err := c.s.fs.OpenDir(dir.fd)
	if err != nil {
		return err
	}
	return c.ref(fd, dir.container)
}

func (c *fileCall) getdents() error {
	dir, err := c.node()
	if err != nil {
		return err
	}
	off, size := int64(c.d.U64()), int(c.d.U32())
	if c.d.Bad || size > fsproto.MaxDirents {
		return unix.EINVAL
	}
	// Into the message buffer, which has been read.
	n, err := c.s.fs.Getdents(dir.fd, off, c.buf[:size])
	if err == nil {
		c.Data(c.buf[:n])
	}
	return err
}

func (c *fileCall) syncDir() error {
	dir, err := c.node()
	if err != nil {
		return err
	}
	return c.s.fs.SyncDir(dir.fd)
}
