package overlay

import (
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"runsc/pkg/ref"
	"runsc/sentry/vfs"
)

var nodeKind = ref.NewKind("overlay.node")

// The extended attributes of the upper layer: their prefix, with the option
// userxattr the second one, and names.
const (
	xattrTrusted = "trusted.overlay."
	xattrUser    = "user.overlay."

	xattrOpaque   = "opaque"
	xattrOrigin   = "origin"
	xattrWhiteout = "whiteout"
)

// Config describes an overlay to New.
type Config struct {
	Source string // shown in /proc/mounts; "overlay" by default
	// Lower are the read-only layers, the topmost first. Upper is the
	// writable one; without it the overlay is read-only. New takes over the
	// file systems; a root other than a file system's own comes in the
	// fields below.
	Lower []vfs.Filesystem
	Upper vfs.Filesystem
	// LowerRoots and UpperRoot, if set, are directories to use instead of
	// the roots of the file systems. New takes over the references.
	LowerRoots []vfs.Inode
	UpperRoot  vfs.Inode
	// Held are places that must stay mounted as long as the overlay; New
	// takes over the references.
	Held []vfs.Path
	// Options are shown in /proc/mounts.
	Options string
}

// FS is one overlay.
type FS struct {
	// immutable after New:
	source, options string           `save:"rec"`
	layers          []vfs.Filesystem `save:"rec"` // to be released
	held            []vfs.Path       `save:"rec"`
	upper           vfs.Filesystem   `save:"rec"`     // to be synced; nil if it belongs to a mount
	top             vfs.Filesystem   `save:"rebuilt"` // whose statfs is reported
	dev             uint64           `save:"rec"`
	lowerDev        []uint64         `save:"rebuilt"` // of the lower roots
	upperDev        uint64           `save:"rebuilt"`
	root            *dirNode         `save:"rebuilt"`
	policy          vfs.CachePolicy  `save:"rebuilt"`
	prefix          string           `save:"rebuilt"` // of the overlay's attributes
	// system acts for the overlay where the caller's rights do not count:
	// copying up, whiteouts (Linux's ovl_override_creds).
	system *systemCreds `save:"rebuilt"`

	nodesMu sync.Mutex `save:"none: not held at a stop"` // a leaf
	// nodesMu guards: the nodes in use of upper files, so that the names of one file share a node, and with it
	// a fifo's pipe, locks and watches.
	byUpper map[vfs.Inode]overNode `save:"rebuilt"`
}

// New returns an overlay.
func New(c vfs.Caller, cfg Config) (*FS, error) {
	fs := &FS{source: cfg.Source, options: cfg.Options, upper: cfg.Upper, dev: vfs.NewAnonDev(),
		held: cfg.Held, policy: vfs.CacheAll, system: newSystemCreds(), prefix: prefixOf(cfg.Options),
		byUpper: map[vfs.Inode]overNode{}}
	if fs.source == "" {
		fs.source = "overlay"
	}
	root := &dirNode{}
	root.init(fs, nil, "")
	if cfg.Upper != nil || cfg.UpperRoot != nil {
		up := cfg.UpperRoot
		if up == nil {
			up = cfg.Upper.Root()
		}
		root.setUpper(up)
	}
	lower := cfg.LowerRoots
	if lower == nil {
		for _, l := range cfg.Lower {
			lower = append(lower, l.Root())
		}
	}
	root.lower = lower
	fs.root = root
	fs.layers = append([]vfs.Filesystem{}, cfg.Lower...)
	if cfg.Upper != nil {
		fs.layers = append(fs.layers, cfg.Upper)
		fs.top = cfg.Upper
	} else if len(cfg.Lower) > 0 {
		fs.top = cfg.Lower[0]
	} else if len(cfg.Held) > 0 {
		// A guest's mount: the upper directory is held last.
		p := cfg.Held[len(cfg.Held)-1]
		fs.top = p.Mount.Filesystem()
		if cfg.UpperRoot != nil {
			fs.upper = fs.top
		}
	}
	if up := root.upper(); up != nil {
		st, err := up.Stat(c, unix.STATX_INO)
		if err != nil {
			fs.Release()
			return nil, err
		}
		fs.upperDev = st.Dev
	}
	for _, l := range lower {
		st, err := l.Stat(c, unix.STATX_INO)
		if err != nil {
			fs.Release()
			return nil, err
		}
		fs.lowerDev = append(fs.lowerDev, st.Dev)
	}
	if cfg.Upper != nil && len(lower) > 0 {
		if err := root.inherit(fs.as(c), lower[0]); err != nil {
			fs.Release()
			return nil, err
		}
	}
	return fs, nil
}

// prefixOf is the prefix that the mount options ask for.
func prefixOf(options string) string {
	if slices.Contains(splitEscaped(options, ','), "userxattr") {
		return xattrUser
	}
	return xattrTrusted
}

// Type implements vfs.Filesystem.
func (fs *FS) Type() string { return "overlay" }

// Root implements vfs.Filesystem.
func (fs *FS) Root() vfs.Inode {
	fs.root.IncRef()
	return fs.root
}

// Statfs implements vfs.Filesystem: the numbers of the upper layer.
func (fs *FS) Statfs(c vfs.Caller) (vfs.Statfs, error) {
	const overlayfsMagic = 0x794c7630
	var s vfs.Statfs
	if fs.top != nil {
		var err error
		if s, err = fs.top.Statfs(c); err != nil {
			return s, err
		}
	}
	s.Type = overlayfsMagic
	s.Fsid = [2]int32{int32(fs.dev), 0}
	s.Namelen = 255
	return s, nil
}

// Source implements vfs.Filesystem.
func (fs *FS) Source() string { return fs.source }

// Options implements vfs.Filesystem.
func (fs *FS) Options() string { return fs.options }

// Cache implements vfs.Filesystem.
func (fs *FS) Cache() vfs.CachePolicy { return fs.policy }

// Sync implements vfs.Filesystem.
func (fs *FS) Sync(c vfs.Caller) error {
	if fs.upper == nil {
		return nil
	}
	return fs.upper.Sync(c)
}

// Release implements vfs.Filesystem.
func (fs *FS) Release() {
	fs.root.DecRef()
	for _, l := range fs.layers {
		l.Release()
	}
	dropPaths(fs.held)
}

// Dev is the device number of the overlay.
func (fs *FS) Dev() uint64 { return fs.dev }

// hostInode is from where inode numbers stand for files of the host; smaller
// ones are counted by each file system of the sandbox for itself.
const hostInode = 1 << 52

// number turns what a layer says into the overlay's own st_dev, where that
// cannot make two files look like one: a lower layer whose numbers may meet
// the upper's keeps its device, as do other devices mounted inside a layer.
func (fs *FS) number(st *vfs.Stat) {
	if st.Dev == fs.upperDev {
		st.Dev = fs.dev
		return
	}
	if st.Ino < hostInode && fs.upperDev != 0 {
		return
	}
	for _, d := range fs.lowerDev {
		if st.Dev == d {
			st.Dev = fs.dev
			return
		}
	}
}
