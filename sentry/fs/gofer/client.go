package gofer

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"runsc/pkg/hostfs"
	"runsc/pkg/waitq"
	"runsc/sentry/vfs"
)

// DefaultIdleFDs is the number of idle host descriptors a sandbox keeps if the
// configuration says nothing.
const DefaultIdleFDs = 1024

// ClientOptions are the settings of a sandbox's host files.
type ClientOptions struct {
	// Key is the host's secret for inode numbers.
	Key    [32]byte
	Policy Policy
	// ProcSelfFD is a descriptor of the Sentry's own /proc/self/fd, through
	// which an O_PATH descriptor is reopened, or -1.
	ProcSelfFD int
	// Backend does the operations; nil: the Sentry itself (direct mode).
	Backend hostfs.Backend
	// Gofer does what the Sentry may not; nil if there is none.
	Gofer Remote
	// Objects are the sockets and fifos that are the host's.
	Objects HostObjects
	// IdleFDs is how many idle host descriptors are kept; 0 means
	// DefaultIdleFDs.
	IdleFDs int
}

// Remote is the part of the gofer process that the Sentry needs in direct mode;
// *fsproto.Files implements it. Errors are errnos.
type Remote interface {
	// MakeIn makes a device node in the directory of an O_PATH descriptor,
	// given as one for data.
	MakeIn(dir hostfs.Target, name string, a *hostfs.NewAttr, stx *unix.Statx_t) error
}

// Client is what the host file systems of a sandbox share.
type Client struct {
	backend hostfs.Backend
	remote  Remote
	numbers *Numbers
	fds     *fdCache
	objects HostObjects

	notifier *notifier
}

// NewClient returns a client. It clears the process's umask: the guest's is
// applied by vfs.
func NewClient(o ClientOptions) *Client {
	unix.Umask(0)
	if o.IdleFDs == 0 {
		o.IdleFDs = DefaultIdleFDs
	}
	if o.Backend == nil {
		o.Backend = hostfs.NewLocal(o.ProcSelfFD)
	}
	cl := &Client{
		backend: o.Backend,
		numbers: NewNumbers(o.Policy, o.Key, vfs.NewAnonDev),
		fds:     newFDCache(o.IdleFDs, o.Backend),
		remote:  o.Gofer,
		objects: o.Objects,

		notifier: newNotifier(o.Backend),
	}
	cl.fds.notifier = cl.notifier
	return cl
}

// Coherence says who else changes the files of a mount.
type Coherence uint8

const (
	// Exclusive: nobody. Attributes and names are cached.
	Exclusive Coherence = iota
	// Shared: the host does. Every walk and stat asks it.
	Shared
)

// Options are the settings of one mount.
type Options struct {
	// RootFD is the root as the backend holds it: in direct mode an O_PATH
	// descriptor, as the gofer sent it. New takes it over.
	RootFD    int
	Coherence Coherence
	// Source is shown in /proc/mounts; "none" if empty.
	Source string
	// Destination is that of the mount in the container's specification, "/"
	// for the root: by it a checkpoint finds the tree again.
	Destination string
}

// Filesystem is one host tree. It implements vfs.Filesystem.
type Filesystem struct {
	// immutable after New:
	client    *Client `save:"rebuilt"`
	exclusive bool    `save:"rebuilt"`
	source    string  `save:"rebuilt"`
	magic     int64   `save:"rebuilt"` // statfs f_type of the root
	root      object  `save:"rebuilt"`
	rootH     *handle `save:"rebuilt"`

	destination string `save:"rec"` // of the mount in the specification

	mu sync.Mutex `save:"none: not held at a stop"`
	// mu guards:
	inodes map[inodeKey]object `save:"none: a cache"` // those in use

	aheadMu sync.Mutex `save:"none: not held at a stop"`
	// aheadMu guards what walks that are under way have read:
	ahead map[*waitq.Waiter][]found `save:"none: a cache"`
}

// New returns the file system of a donated root, which is a directory, or a
// file for a bind mount of one.
func (cl *Client) New(o Options) (*Filesystem, error) {
	fs := &Filesystem{
		client:    cl,
		exclusive: o.Coherence == Exclusive,
		source:    o.Source,
		inodes:    map[inodeKey]object{},

		destination: o.Destination,
	}
	if fs.source == "" {
		fs.source = "none"
	}
	var st unix.Statfs_t
	root := hostfs.Ref(o.RootFD)
	if err := cl.backend.Statfs(root, &st); err != nil {
		cl.backend.Close(o.RootFD)
		return nil, fmt.Errorf("statfs of a donated root: %w", err)
	}
	fs.magic = st.Type
	var stx unix.Statx_t
	if err := cl.backend.Stat(root, "", &stx); err != nil {
		cl.backend.Close(o.RootFD)
		return nil, fmt.Errorf("stat of a donated root: %w", err)
	}
	fs.root = fs.inode(nil, "", &stx)
	cl.numbers.used(fs.root.base().dev)
	fs.rootH = cl.fds.add(fs.root.base(), byPath, o.RootFD, false)
	return fs, nil
}

// Type implements vfs.Filesystem: the name of the host's file system.
func (fs *Filesystem) Type() string {
	if n, ok := fsNames[fs.magic]; ok {
		return n
	}
	return "hostfs"
}

var fsNames = map[int64]string{
	unix.EXT4_SUPER_MAGIC:      "ext4",
	unix.XFS_SUPER_MAGIC:       "xfs",
	unix.BTRFS_SUPER_MAGIC:     "btrfs",
	unix.TMPFS_MAGIC:           "tmpfs",
	unix.OVERLAYFS_SUPER_MAGIC: "overlay",
	unix.F2FS_SUPER_MAGIC:      "f2fs",
	unix.NFS_SUPER_MAGIC:       "nfs",
	unix.FUSE_SUPER_MAGIC:      "fuse",
	unix.PROC_SUPER_MAGIC:      "proc",
	unix.SYSFS_MAGIC:           "sysfs",
	unix.SQUASHFS_MAGIC:        "squashfs",
	unix.EROFS_SUPER_MAGIC_V1:  "erofs",
}

// Root implements vfs.Filesystem.
func (fs *Filesystem) Root() vfs.Inode {
	fs.root.IncRef()
	return fs.root
}

// Statfs implements vfs.Filesystem.
func (fs *Filesystem) Statfs(c vfs.Caller) (vfs.Statfs, error) {
	var st unix.Statfs_t
	if err := fs.client.backend.Statfs(fs.rootH.target(), &st); err != nil {
		return vfs.Statfs{}, err
	}
	dev := fs.root.base().guest.Dev
	return vfs.Statfs{
		Type:  st.Type,
		Bsize: st.Bsize, Frsize: st.Frsize,
		Blocks: st.Blocks, Bfree: st.Bfree, Bavail: st.Bavail,
		Files: st.Files, Ffree: st.Ffree,
		Fsid:    [2]int32{int32(dev), int32(dev >> 32)}, // the host's would show its devices
		Namelen: st.Namelen,
	}, nil
}

// Source implements vfs.Filesystem.
func (fs *Filesystem) Source() string { return fs.source }

// Options implements vfs.Filesystem.
func (fs *Filesystem) Options() string { return "" }

// Cache implements vfs.Filesystem.
func (fs *Filesystem) Cache() vfs.CachePolicy {
	if fs.exclusive {
		return vfs.CacheAll
	}
	return vfs.CacheRevalidate
}

// Sync implements vfs.Filesystem.
func (fs *Filesystem) Sync(c vfs.Caller) error {
	return fs.client.backend.Syncfs(fs.rootH.target())
}

// Release implements vfs.Filesystem: it closes all descriptors but those of
// files still open.
func (fs *Filesystem) Release() {
	fs.client.fds.put(fs.rootH, false)
	fs.root.DecRef()
	fs.mu.Lock()
	left := make([]object, 0, len(fs.inodes))
	for _, o := range fs.inodes {
		left = append(left, o)
	}
	fs.mu.Unlock()
	for _, o := range left {
		fs.client.fds.drop(o.base())
	}
}

// put drops a reference to a handle. Descriptors for data are not kept open
// on shared mounts, where an idle one would hold on to a file that the host
// has deleted.
func (fs *Filesystem) put(h *handle) {
	fs.client.fds.put(h, fs.exclusive || h.kind == byPath && !fs.client.notifier.watched(h.owner))
}
