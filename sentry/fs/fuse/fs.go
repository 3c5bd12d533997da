package fuse

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"runsc/pkg/ref"
	"runsc/sentry/image"
	"runsc/sentry/vfs"
)

var inodeKind = ref.NewKind("fuse.inode")

// NewMemory returns what makes files in memory for one file system, charged
// to the container that c belongs to.
type NewMemory func(c vfs.Caller) func(c vfs.Caller) vfs.Inode

// memories is set by Register.
var memories NewMemory

// Register makes the device and the file system type known to vfs.
func Register(m NewMemory) {
	memories = m
	vfs.RegisterDevice(unix.S_IFCHR, DeviceMajor, DeviceMinor, func(vfs.Caller, *vfs.Dentry, uint32) (vfs.FileOps, error) {
		return &device{}, nil
	})
	vfs.RegisterFSType(vfs.FSType{Name: "fuse", NoDev: true, New: mount})
}

// options are those of mount(2).
type options struct {
	fd                              int32
	rootMode, userID, groupID       uint32
	maxRead                         uint32
	hasFD, hasMode, hasUser, hasGrp bool
	permissions, allowOther         bool
	subtype                         string
}

func parseOptions(s string) (o options, err error) {
	for _, opt := range strings.Split(s, ",") {
		key, val, _ := strings.Cut(opt, "=")
		var n uint64
		number := func(base int) uint32 {
			if n, err = strconv.ParseUint(val, base, 32); err != nil {
				err = unix.EINVAL
			}
			return uint32(n)
		}
		switch key {
		case "":
		case "fd":
			o.fd, o.hasFD = int32(number(10)), true
		case "rootmode":
			o.rootMode, o.hasMode = number(8), true
		case "user_id":
			o.userID, o.hasUser = number(10), true
		case "group_id":
			o.groupID, o.hasGrp = number(10), true
		case "max_read":
			o.maxRead = number(10)
		case "default_permissions":
			o.permissions = true
		case "allow_other":
			o.allowOther = true
		case "subtype":
			o.subtype = "." + val
		default:
			err = unix.EINVAL
		}
		if err != nil {
			return o, err
		}
	}
	if !o.hasFD || !o.hasMode || !o.hasUser || !o.hasGrp || o.rootMode&unix.S_IFMT != unix.S_IFDIR {
		return o, unix.EINVAL
	}
	return o, nil
}

// show is what /proc/mounts has.
func (o *options) show() string {
	s := fmt.Sprintf("user_id=%d,group_id=%d", o.userID, o.groupID)
	if o.permissions {
		s += ",default_permissions"
	}
	if o.allowOther {
		s += ",allow_other"
	}
	if o.maxRead != 0 {
		s += fmt.Sprintf(",max_read=%d", o.maxRead)
	}
	return s
}

// FS is one mounted file system.
type FS struct {
	// immutable after mount:
	conn                *conn  `save:"rec"`
	source, subtype     string `save:"rec"`
	dev                 uint64 `save:"rec"`
	user, group         uint32 `save:"rec"`
	maxRead             uint32 `save:"rec"`
	permissions, others bool   `save:"rec"`
	shown               string `save:"rec"`
	root                *inode `save:"rec"`

	mu sync.Mutex `save:"none: not held at a stop"`
	// mu guards counts of inodes and:
	inodes    map[uint64]*inode            `save:"rec"`
	restoring bool                         `save:"none: only true in a restore"`
	memory    func(c vfs.Caller) vfs.Inode `save:"rebuilt"`
	restored  map[image.ID]*inode          `save:"none: only used by a restore"`
}

func mount(c vfs.Caller, source, opts string, _ vfs.MountFlags) (vfs.Filesystem, error) {
	o, err := parseOptions(opts)
	if err != nil {
		return nil, err
	}
	d, f, err := deviceAt(c, o.fd)
	if err != nil {
		return nil, err
	}
	defer f.DecRef()
	cn := newConn()
	if err := d.attach(cn); err != nil {
		return nil, err
	}
	if source == "" {
		source = "fuse"
	}
	fs := &FS{conn: cn, source: source, subtype: o.subtype, dev: vfs.NewAnonDev(), user: o.userID, group: o.groupID,
		maxRead: o.maxRead, permissions: o.permissions, others: o.allowOther, shown: o.show(), inodes: map[uint64]*inode{}}
	cn.fs = fs
	fs.root = fs.newInode(rootID, o.rootMode)
	fs.root.attr = vfs.Stat{Mode: o.rootMode, UID: o.userID, GID: o.groupID, Ino: rootID, Nlink: 1}
	fs.inodes[rootID] = fs.root
	d.early.Notify(^0 & 0x7fffffff)
	cn.start()
	return fs, nil
}

func (fs *FS) newInode(node uint64, mode uint32) *inode {
	i := &inode{fs: fs, node: node, typ: mode & unix.S_IFMT, refs: 1}
	inodeKind.Born()
	return i
}

// get returns a new reference to the inode of an entry, whose lookup it
// counts. EIO for what cannot be.
func (fs *FS) get(e *entry, parent *inode, name string) (*inode, error) {
	switch e.attr.Mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFDIR, unix.S_IFLNK, unix.S_IFIFO, unix.S_IFSOCK, unix.S_IFCHR, unix.S_IFBLK:
	default:
		return nil, unix.EIO
	}
	if e.node == 0 || e.node == rootID || e.attr.Size > 1<<63-1 {
		return nil, unix.EIO
	}
	fs.mu.Lock()
	i := fs.inodes[e.node]
	if i != nil && (i.generation != e.generation || i.typ != e.attr.Mode&unix.S_IFMT) {
		i = nil // another file has the number: the old one is kept by who has it
	}
	if i == nil {
		i = fs.newInode(e.node, e.attr.Mode)
		i.generation = e.generation
		fs.inodes[e.node] = i
	} else {
		i.refs++
	}
	i.lookups++
	i.parent, i.name = parent.node, name
	fs.mu.Unlock()
	i.mu.Lock()
	i.entryValid = deadline(e.entryValid, e.entryNanos)
	i.mu.Unlock()
	i.setAttr(&e.attr, e.attrValid, e.attrNanos)
	return i, nil
}

// deadline is the end of a timeout that the server gave.
func deadline(sec uint64, nsec uint32) time.Time {
	if sec > 1<<32 {
		sec = 1 << 32
	}
	if sec == 0 && nsec == 0 {
		return time.Time{}
	}
	return time.Now().Add(time.Duration(sec)*time.Second + time.Duration(min(nsec, 999_999_999)))
}

// Type implements vfs.Filesystem.
func (fs *FS) Type() string { return "fuse" + fs.subtype }

// Root implements vfs.Filesystem.
func (fs *FS) Root() vfs.Inode {
	fs.root.IncRef()
	return fs.root.outer()
}

// Source implements vfs.Filesystem.
func (fs *FS) Source() string { return fs.source }

// Options implements vfs.Filesystem.
func (fs *FS) Options() string { return fs.shown }

// Cache implements vfs.Filesystem.
func (fs *FS) Cache() vfs.CachePolicy { return vfs.CacheRevalidate }

// Sync implements vfs.Filesystem.
func (fs *FS) Sync(vfs.Caller) error { return nil }

// Dev is the device number.
func (fs *FS) Dev() uint64 { return fs.dev }

// Statfs implements vfs.Filesystem.
func (fs *FS) Statfs(c vfs.Caller) (vfs.Statfs, error) {
	s := vfs.Statfs{Type: unix.FUSE_SUPER_MAGIC, Fsid: [2]int32{int32(fs.dev), 0}}
	if err := fs.allowed(c); err != nil {
		return s, nil // fuse_statfs: zeros for strangers
	}
	b, err := fs.conn.call(c, opStatfs, rootID, nil, 80, 80)
	if err != nil {
		return s, err
	}
	s.Blocks, s.Bfree, s.Bavail, s.Files, s.Ffree = u64(b, 0), u64(b, 8), u64(b, 16), u64(b, 24), u64(b, 32)
	s.Bsize, s.Namelen, s.Frsize = int64(u32(b, 40)), int64(u32(b, 44)), int64(u32(b, 48))
	return s, nil
}

// Release implements vfs.Filesystem: the server gets ENODEV.
func (fs *FS) Release() {
	fs.root.DecRef()
	fs.conn.abort()
}

// allowed refuses processes that are not wholly the mounting user's, unless
// others are allowed (fuse_allow_current_process).
func (fs *FS) allowed(c vfs.Caller) error {
	if fs.others {
		return nil
	}
	cr := c.Cred()
	if cr.UID == fs.user && cr.EUID == fs.user && cr.SUID == fs.user &&
		cr.GID == fs.group && cr.EGID == fs.group && cr.SGID == fs.group {
		return nil
	}
	return unix.EACCES
}
