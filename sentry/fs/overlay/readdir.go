package overlay

import (
	"sync"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/vfs"
)

// Open implements vfs.Inode.
func (d *dirNode) Open(vfs.Caller, *vfs.Dentry, uint32) (vfs.FileOps, error) {
	return &dirOps{d: d}, nil
}

// dirOps is an open directory. One that is in a single layer is listed by that
// layer; a merged one is listed from a copy made when reading starts, as on
// Linux.
type dirOps struct {
	d *dirNode `save:"rebuilt"`

	mu sync.Mutex `save:"none: not held at a stop"`
	// mu guards:
	single  vfs.FileOps  `save:"rebuilt"` // the only layer, being listed
	entries []vfs.Dirent `save:"rec"`
	listed  bool         `save:"rebuilt"`
}

// Release implements vfs.FileOps.
func (o *dirOps) Release() { o.reset() }

func (o *dirOps) reset() {
	if o.single != nil {
		o.single.Release()
	}
	o.single, o.entries, o.listed = nil, nil, false
}

// Ready implements vfs.FileOps.
func (*dirOps) Ready(mask waitq.Mask) waitq.Mask {
	return mask & (waitq.In | waitq.Out | waitq.RdNorm | waitq.WrNorm)
}

// Fsync implements vfs.Syncer.
func (o *dirOps) Fsync(vfs.Caller, bool) error { return nil }

// Seek implements vfs.Seeker: positions are cookies.
func (*dirOps) Seek(_ vfs.Caller, _ *vfs.File, _ int64, whence int) (int64, error) {
	if whence == unix.SEEK_END {
		return 0, unix.EINVAL
	}
	return 0, unix.ENOTSUP
}

// ReadDir implements vfs.DirReader. File holds its offset lock, so there is
// one call at a time.
func (o *dirOps) ReadDir(c vfs.Caller, f *vfs.File, pos int64, emit func(vfs.Dirent) bool) error {
	o.mu.Lock()
	if pos == 0 {
		o.reset()
	}
	if !o.listed {
		if err := o.start(c, f); err != nil {
			o.mu.Unlock()
			return err
		}
	}
	single, entries := o.single, o.entries
	o.mu.Unlock()
	if single != nil {
		return o.readSingle(c, f, single.(vfs.DirReader), pos, emit)
	}
	for pos >= 0 && pos < int64(len(entries)) {
		e := entries[pos]
		pos++
		e.Next = pos
		if !emit(e) {
			return nil
		}
	}
	return nil
}

// start opens the only layer or merges all.
func (o *dirOps) start(c vfs.Caller, f *vfs.File) error {
	d := o.d
	sys := d.fs.as(c)
	o.listed = true
	up := d.upper()
	if up == nil && len(d.lower) == 1 {
		ops, err := d.lower[0].Open(sys, nil, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			o.listed = false
			return err
		}
		if _, ok := ops.(vfs.DirReader); !ok {
			ops.Release()
			o.listed = false
			return unix.ENOTDIR
		}
		o.single = ops
		return nil
	}
	entries, err := d.merge(sys, dotdotIno(sys, d, f))
	if err != nil {
		o.listed = false
		return err
	}
	o.entries = entries
	return nil
}

// readSingle lists one layer. "." and ".." keep the overlay's numbers.
func (o *dirOps) readSingle(c vfs.Caller, f *vfs.File, r vfs.DirReader, pos int64, emit func(vfs.Dirent) bool) error {
	return r.ReadDir(o.d.fs.as(c), f, pos, func(e vfs.Dirent) bool {
		if e.Name == ".." {
			e.Ino = dotdotIno(c, o.d, f)
		}
		return emit(e)
	})
}

func (d *dirNode) ino(c vfs.Caller) uint64 {
	st, err := d.Stat(c, unix.STATX_INO)
	if err != nil {
		return 1
	}
	return st.Ino
}

// dotdotIno is the number of the directory that d, opened as f, is in. The
// dentry knows it, the node only where it was found first.
func dotdotIno(c vfs.Caller, d *dirNode, f *vfs.File) uint64 {
	if f != nil {
		if p := f.Path().Dentry.Parent(); p != nil {
			defer p.DecRef()
			if up, ok := p.Inode().(*dirNode); ok {
				return up.ino(c)
			}
		}
	}
	return d.ino(c)
}

// merge lists all layers, upper entries first. Whiteouts hide names below.
func (d *dirNode) merge(c vfs.Caller, dotdot uint64) ([]vfs.Dirent, error) {
	out := []vfs.Dirent{
		{Name: ".", Ino: d.ino(c), Type: unix.DT_DIR},
		{Name: "..", Ino: dotdot, Type: unix.DT_DIR},
	}
	seen := make(map[string]bool)
	if up, ok := d.upper().(vfs.Dir); ok {
		entries, err := list(c, up)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			i, err := up.Lookup(c, e.Name)
			if err != nil {
				continue // gone meanwhile
			}
			if e.Type == unix.DT_CHR && statWhiteout(c, i) {
				i.DecRef()
				seen[e.Name] = true
				continue
			}
			if o := d.fs.readOrigin(c, i); o != nil {
				e.Ino = o.ino
			}
			i.DecRef()
			seen[e.Name] = true
			out = append(out, e)
		}
	}
	for k, l := range d.lower {
		low := l.(vfs.Dir)
		entries, err := list(c, low)
		if err != nil {
			return nil, err
		}
		last := k == len(d.lower)-1
		fileWhiteouts := len(d.lower) > 1 && d.fs.opaque(c, l) == 'x'
		for _, e := range entries {
			if seen[e.Name] {
				continue
			}
			if e.Type == unix.DT_CHR && lookupWhiteout(c, low, e.Name) || fileWhiteouts && e.Type == unix.DT_REG && d.fs.lookupFileWhiteout(c, low, e.Name) {
				seen[e.Name] = true
				continue
			}
			if !last {
				seen[e.Name] = true
			}
			out = append(out, e)
		}
	}
	return out, nil
}

func statWhiteout(c vfs.Caller, i vfs.Inode) bool {
	st, err := i.Stat(c, 0)
	return err == nil && isWhiteout(&st)
}

func lookupWhiteout(c vfs.Caller, d vfs.Dir, name string) bool {
	i, err := d.Lookup(c, name)
	if err != nil {
		return false
	}
	defer i.DecRef()
	return statWhiteout(c, i)
}

func (fs *FS) lookupFileWhiteout(c vfs.Caller, d vfs.Dir, name string) bool {
	i, err := d.Lookup(c, name)
	if err != nil {
		return false
	}
	defer i.DecRef()
	st, err := i.Stat(c, unix.STATX_SIZE)
	return err == nil && fs.fileWhiteout(c, d, i, &st)
}

// list returns a layer's entries without "." and "..".
func list(c vfs.Caller, d vfs.Inode) ([]vfs.Dirent, error) {
	ops, err := d.Open(c, nil, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer ops.Release()
	r, ok := ops.(vfs.DirReader)
	if !ok {
		return nil, unix.ENOTDIR
	}
	var out []vfs.Dirent
	err = r.ReadDir(c, nil, 0, func(e vfs.Dirent) bool {
		if e.Name != "." && e.Name != ".." {
			out = append(out, e)
		}
		return true
	})
	return out, err
}

// checkEmpty is ENOTEMPTY if anything but whiteouts is in the directory.
func (d *dirNode) checkEmpty(c vfs.Caller) error {
	entries, err := d.merge(d.fs.as(c), 0)
	if err != nil {
		return err
	}
	if len(entries) > 2 {
		return unix.ENOTEMPTY
	}
	return nil
}

// clearWhiteouts empties an upper directory that shows as empty.
func clearWhiteouts(c vfs.Caller, d vfs.Dir) error {
	entries, err := list(c, d)
	if err != nil {
		return err
	}
	for _, e := range entries {
		i, err := d.Lookup(c, e.Name)
		if err == unix.ENOENT {
			continue
		}
		if err == nil {
			if !statWhiteout(c, i) {
				err = unix.ENOTEMPTY
			} else {
				err = d.Unlink(c, e.Name, i)
			}
			i.DecRef()
		}
		if err != nil {
			return err
		}
	}
	return nil
}
