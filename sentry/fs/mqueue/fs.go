package mqueue

import (
	"math"
	"sort"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/image"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// What a queue and a message cost the Sentry beside the data, about.
const (
	queueCost   = 1024
	messageCost = 64
)

// Bounds that also those with CAP_SYS_RESOURCE keep (HARD_MSGMAX,
// HARD_MSGSIZEMAX).
const (
	hardMaxMsg  = 65536
	hardMsgSize = 16 << 20
)

// Limits are the values of /proc/sys/fs/mqueue in an IPC namespace.
type Limits struct {
	QueuesMax, MsgMax, MsgSizeMax, MsgDefault, MsgSizeDefault atomic.Int64
}

// FS is the queues of an IPC namespace. It implements vfs.Filesystem.
type FS struct {
	// immutable after New:
	acct  *mem.Account `save:"rebuilt"`
	dev   uint64       `save:"rec"`
	root  *dir         `save:"rebuilt"`
	mount *vfs.Mount   `save:"rec"` // in no tree: the one that the calls work on, and others are made from

	Limits Limits `save:"rec"`

	mu sync.Mutex `save:"none: not held at a stop"`
	// mu guards:
	queues  map[string]*Queue `save:"rec"`
	lastIno uint64            `save:"rec"`
	rootSt  vfs.Stat          `save:"rec"`

	restored map[image.ID]*Queue `save:"none: only used by a restore"`
}

// New returns the queues of a new IPC namespace, none; acct, which may be nil,
// pays for messages.
func New(acct *mem.Account) *FS {
	fs := newFS(acct, vfs.NewAnonDev())
	fs.mount = vfs.NewMount(fs, 0)
	return fs
}

func newFS(acct *mem.Account, dev uint64) *FS {
	fs := &FS{acct: acct, dev: dev, queues: map[string]*Queue{}, lastIno: 1}
	fs.root = &dir{fs}
	now := vfs.TimespecOf(vfs.KernelCaller().RealTime())
	fs.rootSt = vfs.Stat{
		Mask: unix.STATX_BASIC_STATS, Mode: unix.S_IFDIR | 0o1777, Ino: 1, Nlink: 2, Size: 40,
		BlockSize: mem.PageSize, Dev: dev, Atime: now, Mtime: now, Ctime: now,
	}
	l := &fs.Limits
	l.QueuesMax.Store(256)
	l.MsgMax.Store(10)
	l.MsgSizeMax.Store(8192)
	l.MsgDefault.Store(10)
	l.MsgSizeDefault.Store(8192)
	return fs
}

// View is fs as a new mount takes it over: the queues do not go with it.
func (fs *FS) View() vfs.Filesystem { return view{fs} }

type view struct{ *FS }

// Release implements vfs.Filesystem.
func (view) Release() {}

// RootPath returns the path at which the calls find names, borrowed.
func (fs *FS) RootPath() vfs.Path { return fs.mount.Root() }

// SharedMount implements vfs.Shared.
func (fs *FS) SharedMount() *vfs.Mount { return fs.mount }

// KeepMount makes a restored mount of fs the one that the calls work on,
// taking it over.
func (fs *FS) KeepMount(m *vfs.Mount) { fs.mount = m }

// Empty tells whether there are no queues.
func (fs *FS) Empty() bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return len(fs.queues) == 0
}

// Close ends the queues of a namespace that nobody is in.
func (fs *FS) Close() { fs.mount.DecRef() }

// Type implements vfs.Filesystem.
func (*FS) Type() string { return "mqueue" }

// Root implements vfs.Filesystem.
func (fs *FS) Root() vfs.Inode { return fs.root }

// Statfs implements vfs.Filesystem.
func (fs *FS) Statfs(vfs.Caller) (vfs.Statfs, error) {
	const magic = 0x19800202
	return vfs.Statfs{Type: magic, Bsize: mem.PageSize, Frsize: mem.PageSize, Namelen: 255, Fsid: [2]int32{int32(fs.dev), 0}}, nil
}

// Source implements vfs.Filesystem.
func (*FS) Source() string { return "mqueue" }

// Options implements vfs.Filesystem.
func (*FS) Options() string { return "" }

// Cache implements vfs.Filesystem.
func (*FS) Cache() vfs.CachePolicy { return vfs.CachePinned }

// Sync implements vfs.Filesystem.
func (*FS) Sync(vfs.Caller) error { return nil }

// Release implements vfs.Filesystem: all queues go.
func (fs *FS) Release() {
	fs.mu.Lock()
	all := fs.queues
	fs.queues = map[string]*Queue{}
	fs.mu.Unlock()
	for _, q := range all {
		q.unlinked()
	}
}

func (fs *FS) charge(n int64) error {
	if fs.acct == nil {
		return nil
	}
	return fs.acct.Charge(uint64(n))
}

func (fs *FS) uncharge(n int64) {
	if fs.acct != nil {
		fs.acct.Uncharge(uint64(n))
	}
}

// users counts RLIMIT_MSGQUEUE by user id (struct ucounts).
var users userBytes

type userBytes struct {
	mu sync.Mutex
	// mu guards:
	bytes map[uint32]uint64
}

func (u *userBytes) add(uid uint32, n, limit uint64) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.bytes == nil {
		u.bytes = map[uint32]uint64{}
	}
	if sum := u.bytes[uid] + n; sum < n || sum > limit {
		return false
	}
	u.bytes[uid] += n
	return true
}

func (u *userBytes) drop(uid uint32, n uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.bytes[uid] -= n; u.bytes[uid] == 0 {
		delete(u.bytes, uid)
	}
}

// creator is a Caller that makes a queue of other than the default sizes.
type creator struct {
	vfs.Caller
	attr Attr
}

// MountNamespace lets vfs see in which mount namespace the caller is.
func (c creator) MountNamespace() *vfs.Namespace {
	if t, ok := c.Caller.(interface{ MountNamespace() *vfs.Namespace }); ok {
		return t.MountNamespace()
	}
	return nil
}

// Open implements mq_open(3); mode is after the umask, attr nil for the
// defaults.
func (fs *FS) Open(c vfs.Caller, name string, flags, mode uint32, attr *Attr) (*vfs.File, error) {
	if attr != nil && flags&unix.O_CREAT != 0 {
		c = creator{c, *attr}
	}
	return vfs.OpenAt(c, vfs.At{Dir: fs.RootPath(), Name: name, Flags: vfs.NoFollow}, flags&^unix.O_TRUNC, mode)
}

// Unlink implements mq_unlink(3).
func (fs *FS) Unlink(c vfs.Caller, name string) error {
	return vfs.UnlinkAt(c, vfs.At{Dir: fs.RootPath(), Name: name})
}

// attrFor is the sizes of a queue that c makes, checked (mq_attr_ok).
func (fs *FS) attrFor(c vfs.Caller) (Attr, error) {
	l := &fs.Limits
	x, ok := c.(creator)
	if !ok {
		return Attr{min(l.MsgMax.Load(), l.MsgDefault.Load()), min(l.MsgSizeMax.Load(), l.MsgSizeDefault.Load())}, nil
	}
	a := x.attr
	maxMsg, maxSize := l.MsgMax.Load(), l.MsgSizeMax.Load()
	if c.Cred().Has(unix.CAP_SYS_RESOURCE) {
		maxMsg, maxSize = hardMaxMsg, hardMsgSize
	}
	if a.MaxMsg <= 0 || a.MsgSize <= 0 || a.MaxMsg > maxMsg || a.MsgSize > maxSize {
		return a, unix.EINVAL
	}
	return a, nil
}

// dir is the root directory.
type dir struct {
	fs *FS `save:"rec"`
}

// IncRef implements vfs.Inode; it lives as long as the file system.
func (*dir) IncRef() {}

// DecRef implements vfs.Inode.
func (*dir) DecRef() {}

// Stat implements vfs.Inode.
func (d *dir) Stat(vfs.Caller, uint32) (vfs.Stat, error) {
	d.fs.mu.Lock()
	defer d.fs.mu.Unlock()
	return d.fs.rootSt, nil
}

// SetStat implements vfs.Inode.
func (d *dir) SetStat(c vfs.Caller, s *vfs.SetStat) error {
	d.fs.mu.Lock()
	defer d.fs.mu.Unlock()
	s.Apply(&d.fs.rootSt, c.RealTime())
	return nil
}

// Open implements vfs.Inode.
func (d *dir) Open(vfs.Caller, *vfs.Dentry, uint32) (vfs.FileOps, error) { return &dirFile{d.fs}, nil }

// Lookup implements vfs.Dir.
func (d *dir) Lookup(_ vfs.Caller, name string) (vfs.Inode, error) {
	d.fs.mu.Lock()
	defer d.fs.mu.Unlock()
	q := d.fs.queues[name]
	if q == nil {
		return nil, unix.ENOENT
	}
	q.IncRef()
	return q, nil
}

// Create implements vfs.Dir: a new queue.
func (d *dir) Create(c vfs.Caller, name string, a vfs.CreateAttr) (vfs.Inode, error) {
	fs := d.fs
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if int64(len(fs.queues)) >= fs.Limits.QueuesMax.Load() && !c.Cred().Has(unix.CAP_SYS_RESOURCE) {
		return nil, unix.ENOSPC
	}
	attr, err := fs.attrFor(c)
	if err != nil {
		return nil, err
	}
	uid := c.Cred().UID
	if !users.add(uid, attr.cost(), c.Rlimit(unix.RLIMIT_MSGQUEUE)) {
		return nil, unix.EMFILE
	}
	if err := fs.charge(queueCost); err != nil {
		users.drop(uid, attr.cost())
		return nil, err
	}
	fs.lastIno++
	now := vfs.TimespecOf(c.RealTime())
	q := &Queue{fs: fs, ino: fs.lastIno, attr: attr, owner: uid, refs: 1, st: vfs.Stat{
		Mask: unix.STATX_BASIC_STATS, Mode: a.Mode, UID: a.UID, GID: a.GID, Ino: fs.lastIno, Nlink: 1, Size: fileSize,
		BlockSize: mem.PageSize, Dev: fs.dev, Atime: now, Mtime: now, Ctime: now,
	}}
	fs.queues[name] = q
	fs.touchLocked(now, 20)
	return q, nil
}

func (fs *FS) touchLocked(now vfs.Timespec, grown int64) {
	fs.rootSt.Atime, fs.rootSt.Mtime, fs.rootSt.Ctime = now, now, now
	fs.rootSt.Size = uint64(int64(fs.rootSt.Size) + grown)
}

// Mkdir implements vfs.Dir. Only queues can be made.
func (*dir) Mkdir(vfs.Caller, string, vfs.CreateAttr) (vfs.Inode, error) { return nil, unix.EPERM }

// Mknod implements vfs.Dir.
func (*dir) Mknod(vfs.Caller, string, vfs.CreateAttr, uint64) (vfs.Inode, error) {
	return nil, unix.EPERM
}

// Symlink implements vfs.Dir.
func (*dir) Symlink(vfs.Caller, string, string, vfs.CreateAttr) (vfs.Inode, error) {
	return nil, unix.EPERM
}

// Link implements vfs.Dir.
func (*dir) Link(vfs.Caller, string, vfs.Inode) error { return unix.EPERM }

// Unlink implements vfs.Dir.
func (d *dir) Unlink(c vfs.Caller, name string, _ vfs.Inode) error {
	fs := d.fs
	fs.mu.Lock()
	q := fs.queues[name]
	delete(fs.queues, name)
	fs.touchLocked(vfs.TimespecOf(c.RealTime()), -20)
	fs.mu.Unlock()
	if q != nil {
		q.unlinked()
	}
	return nil
}

// unlinked takes the name's hold on q away.
func (q *Queue) unlinked() {
	q.mu.Lock()
	q.st.Nlink = 0
	q.freeLocked()
	q.mu.Unlock()
}

// Rmdir implements vfs.Dir.
func (*dir) Rmdir(vfs.Caller, string, vfs.Inode) error { return unix.EPERM }

// Rename implements vfs.Dir.
func (*dir) Rename(vfs.Caller, string, vfs.Inode, vfs.Dir, string, vfs.Inode, uint32) error {
	return unix.EPERM
}

// dirFile is the open root directory. The position after a queue is its
// number, so that names can come and go.
type dirFile struct {
	fs *FS `save:"rebuilt"`
}

// ReadDir implements vfs.DirReader.
func (o *dirFile) ReadDir(_ vfs.Caller, _ *vfs.File, pos int64, emit func(vfs.Dirent) bool) error {
	list := []vfs.Dirent{{Name: ".", Ino: 1, Type: unix.DT_DIR, Next: 1}, {Name: "..", Ino: 1, Type: unix.DT_DIR, Next: 2}}
	o.fs.mu.Lock()
	for name, q := range o.fs.queues {
		list = append(list, vfs.Dirent{Name: name, Ino: q.ino, Type: unix.DT_REG, Next: int64(min(q.ino, math.MaxInt32)) + 2})
	}
	o.fs.mu.Unlock()
	sort.Slice(list, func(i, j int) bool { return list[i].Next < list[j].Next })
	for _, e := range list {
		if e.Next > pos && !emit(e) {
			break
		}
	}
	return nil
}

// Release implements vfs.FileOps.
func (*dirFile) Release() {}

// Ready implements vfs.FileOps.
func (*dirFile) Ready(mask waitq.Mask) waitq.Mask { return mask & (waitq.In | waitq.Out) }
