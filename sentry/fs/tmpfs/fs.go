package tmpfs

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"runsc/pkg/ref"
	"runsc/sentry/image"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

const pageSize = mem.PageSize

// DefaultInodes bounds the inodes of a file system without nr_inodes: they
// cost Sentry memory.
const DefaultInodes = 1 << 20

var inodeKind = ref.NewKind("tmpfs.inode")

// Config describes a file system to New.
type Config struct {
	Memory  *mem.File
	Account *mem.Account // charged for data; nil for the memfile's own
	// Upper makes it the upper layer of the container's root: Account.Upper
	// is charged for the data and tells where they are.
	Upper  bool
	Source string // shown in /proc/mounts; "tmpfs" by default
	// Size bounds the data in bytes, Inodes the number of files; 0 is no
	// bound, but for DefaultInodes.
	Size   uint64
	Inodes uint64
	// Mode, UID and GID are those of the root directory; mode 0 is 01777.
	Mode, UID, GID uint32
}

// FS is one tmpfs.
type FS struct {
	// immutable after New:
	mf        *mem.File    `save:"rebuilt"`
	acct      *mem.Account `save:"rebuilt"`
	data      *mem.Account `save:"rebuilt"` // charged for pages: acct, or that of the upper layer
	upper     bool         `save:"rec"`
	source    string       `save:"rec"`
	dev       uint64       `save:"rec"`
	sharedDev bool         `save:"rec"` // another file system has the number too
	root      *dir         `save:"rec"`

	maxPages  atomic.Int64  `save:"rec"` // 0: no bound
	maxInodes atomic.Int64  `save:"rec"`
	pages     atomic.Int64  `save:"rebuilt"`
	inodes    atomic.Int64  `save:"rebuilt"`
	lastIno   atomic.Uint64 `save:"rec"`

	// treeMu guards the entries of all directories and all link counts.
	treeMu sync.RWMutex `save:"none: not held at a stop"`
	// Shown in the mount options, as given:
	opts atomic.Pointer[string] `save:"rec"`

	// restored are the inodes by number while an image is being restored.
	restored map[image.ID]node `save:"none: only used by a restore"`
}

// New returns a tmpfs with an empty root directory.
func New(c vfs.Caller, cfg Config) *FS {
	fs := &FS{mf: cfg.Memory, acct: cfg.Account, source: cfg.Source, dev: vfs.NewAnonDev()}
	fs.setData(cfg.Upper)
	if fs.source == "" {
		fs.source = "tmpfs"
	}
	if cfg.Mode == 0 {
		cfg.Mode = 0o1777
	}
	if cfg.Inodes == 0 {
		cfg.Inodes = DefaultInodes
	}
	fs.maxPages.Store(int64(min(cfg.Size, 1<<62) / pageSize))
	fs.maxInodes.Store(int64(min(cfg.Inodes, 1<<62)))
	fs.showOptions(&cfg)
	fs.root = &dir{}
	a := vfs.CreateAttr{Mode: unix.S_IFDIR | cfg.Mode&0o7777, UID: cfg.UID, GID: cfg.GID}
	if fs.acct != nil {
		_ = fs.acct.Charge(inodeCost) // a root there must be
	}
	fs.initInode(&fs.root.inode, c, a)
	fs.root.nlink = 2
	return fs
}

// setData decides which account is charged for pages.
func (fs *FS) setData(upper bool) {
	fs.data, fs.upper = fs.acct, upper
	if upper && fs.acct != nil && fs.acct.Upper != nil {
		fs.data = fs.acct.Upper
	}
}

// showOptions sets what /proc/mounts shows.
func (fs *FS) showOptions(cfg *Config) {
	var o []string
	if cfg.Size != 0 {
		o = append(o, fmt.Sprintf("size=%dk", cfg.Size/1024))
	}
	if cfg.Inodes != DefaultInodes {
		o = append(o, fmt.Sprintf("nr_inodes=%d", cfg.Inodes))
	}
	if cfg.Mode != 0o1777 {
		o = append(o, fmt.Sprintf("mode=%03o", cfg.Mode))
	}
	if cfg.UID != 0 {
		o = append(o, fmt.Sprintf("uid=%d", cfg.UID))
	}
	if cfg.GID != 0 {
		o = append(o, fmt.Sprintf("gid=%d", cfg.GID))
	}
	s := strings.Join(o, ",")
	fs.opts.Store(&s)
}

// ParseOptions fills cfg from the option string of mount(2). EINVAL for an
// unknown or malformed option.
func ParseOptions(cfg *Config, options string) error {
	for _, o := range strings.Split(options, ",") {
		key, val, _ := strings.Cut(o, "=")
		var err error
		if known, _ := knownOption(key); !known {
			return unix.EINVAL
		}
		switch key {
		case "":
		case "size":
			cfg.Size, err = parseSize(val)
			cfg.Size = (cfg.Size + pageSize - 1) &^ (pageSize - 1)
		case "nr_blocks":
			cfg.Size, err = parseSize(val)
			if cfg.Size > 1<<50 {
				return unix.EINVAL
			}
			cfg.Size *= pageSize
		case "nr_inodes":
			cfg.Inodes, err = parseSize(val)
		case "mode":
			cfg.Mode, err = parse32(val, 8)
			cfg.Mode &= 0o7777
		case "uid":
			cfg.UID, err = parse32(val, 10)
		case "gid":
			cfg.GID, err = parse32(val, 10)
		}
		if err != nil {
			return unix.EINVAL
		}
	}
	return nil
}

// knownOption tells whether there is an option of that name, and whether it
// has no value. Those that ParseOptions does not look at change nothing here.
func knownOption(key string) (known, flag bool) {
	switch key {
	case "", "inode32", "inode64", "noswap":
		return true, true
	case "size", "nr_blocks", "nr_inodes", "mode", "uid", "gid", "mpol", "huge":
		return true, false
	}
	return false, false
}

// CheckOption looks at one option for fsconfig(2).
func CheckOption(option string) (known bool, err error) {
	key, _, hasValue := strings.Cut(option, "=")
	known, flag := knownOption(key)
	if known && flag == hasValue {
		return true, unix.EINVAL
	}
	return known, ParseOptions(&Config{}, option)
}

func parse32(s string, base int) (uint32, error) {
	n, err := strconv.ParseUint(s, base, 32)
	return uint32(n), err
}

// parseSize reads a number with k, m, g, t; a percentage is of no bound that
// is known here and means none.
func parseSize(s string) (uint64, error) {
	if strings.HasSuffix(s, "%") {
		return 0, nil
	}
	shift := 0
	if n := len(s); n > 0 {
		if i := strings.IndexByte("kmgt", s[n-1]|0x20); i >= 0 {
			shift, s = 10*(i+1), s[:n-1]
		}
	}
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil || n<<shift>>shift != n {
		return 0, unix.EINVAL
	}
	return n << shift, nil
}

// Type implements vfs.Filesystem.
func (fs *FS) Type() string { return "tmpfs" }

// Root implements vfs.Filesystem.
func (fs *FS) Root() vfs.Inode {
	fs.root.IncRef()
	return fs.root
}

// Source implements vfs.Filesystem.
func (fs *FS) Source() string { return fs.source }

// Options implements vfs.Filesystem.
func (fs *FS) Options() string { return *fs.opts.Load() }

// Cache implements vfs.Filesystem.
func (fs *FS) Cache() vfs.CachePolicy { return vfs.CachePinned }

// Sync implements vfs.Filesystem.
func (fs *FS) Sync(vfs.Caller) error { return nil }

// Dev is the device number of the file system.
func (fs *FS) Dev() uint64 { return fs.dev }

// Statfs implements vfs.Filesystem.
func (fs *FS) Statfs(vfs.Caller) (vfs.Statfs, error) {
	const tmpfsMagic = 0x01021994
	s := vfs.Statfs{Type: tmpfsMagic, Bsize: pageSize, Frsize: pageSize, Namelen: 255,
		Fsid: [2]int32{int32(fs.dev), 0}}
	if limit := fs.limitPages(); limit > 0 {
		s.Blocks = uint64(limit)
		s.Bfree = uint64(max(limit-fs.pages.Load(), 0))
		s.Bavail = s.Bfree
	}
	if total, free, ok := fs.data.DiskRoom(); ok {
		if fs.maxPages.Load() == 0 {
			s.Blocks = total / pageSize
		}
		s.Bfree = min(s.Blocks-min(s.Blocks, uint64(fs.pages.Load())), free/pageSize)
		s.Bavail = s.Bfree
	}
	s.Files = uint64(fs.maxInodes.Load())
	s.Ffree = uint64(max(int64(s.Files)-fs.inodes.Load(), 0))
	return s, nil
}

// ramPages is the size of the host's memory.
var ramPages = sync.OnceValue(func() int64 {
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) != nil {
		return 1 << 20
	}
	return int64(si.Totalram) * int64(si.Unit) / pageSize
})

// limitPages is the size in pages that programs see: the bound, or that of the
// account, or half of the memory as on Linux without the option size.
func (fs *FS) limitPages() int64 {
	if n := fs.maxPages.Load(); n > 0 {
		return n
	}
	if fs.data.FileKind() == mem.Disk {
		return 0 // the disk's size
	}
	if fs.data != nil {
		if l := fs.data.Limit(); l > 0 {
			return int64(l / pageSize)
		}
	}
	return ramPages() / 2
}

// Remount implements vfs.Remounter: size and nr_inodes can change, but not
// below what is in use.
func (fs *FS) Remount(_ vfs.Caller, _ vfs.MountFlags, options string) error {
	old := Config{Mode: 0o1777}
	_ = ParseOptions(&old, fs.Options()) // what cannot change
	cfg := Config{Size: uint64(fs.maxPages.Load()) * pageSize, Inodes: uint64(fs.maxInodes.Load())}
	if err := ParseOptions(&cfg, options); err != nil {
		return err
	}
	if cfg.Inodes == 0 {
		cfg.Inodes = DefaultInodes
	}
	pages, inodes := int64(cfg.Size/pageSize), int64(cfg.Inodes)
	if pages > 0 && pages < fs.pages.Load() || inodes > 0 && inodes < fs.inodes.Load() {
		return unix.EINVAL
	}
	fs.maxPages.Store(pages)
	fs.maxInodes.Store(inodes)
	cfg.Mode, cfg.UID, cfg.GID = old.Mode, old.UID, old.GID
	fs.showOptions(&cfg)
	return nil
}

// Release implements vfs.Filesystem: everything is freed.
func (fs *FS) Release() {
	fs.treeMu.Lock()
	gone := fs.root.dropTreeLocked(nil)
	fs.treeMu.Unlock()
	for _, i := range gone {
		i.base().lost(i)
	}
	fs.root.DecRef()
}

// What an inode and a name cost the Sentry, about: charged, so that a guest
// with a memory limit cannot fill the Sentry with empty files.
const (
	inodeCost = 512
	nameCost  = 256
)

func (fs *FS) chargeKernel(n int) error {
	if fs.acct == nil || n <= 0 {
		return nil
	}
	return fs.acct.Charge(uint64(n))
}

func (fs *FS) unchargeKernel(n int) {
	if fs.acct != nil && n > 0 {
		fs.acct.Uncharge(uint64(n))
	}
}

// charge reserves n pages of the file system's size.
func (fs *FS) charge(n int64) error {
	limit := fs.maxPages.Load()
	if got := fs.pages.Add(n); limit > 0 && got > limit {
		fs.pages.Add(-n)
		return unix.ENOSPC
	}
	return nil
}
