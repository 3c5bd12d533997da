package fsproto

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/pkg/hostfs"
)

// The methods of hostfs.Backend, in its order.

// Stat implements hostfs.Backend.
func (f *Files) Stat(t hostfs.Target, name string, stx *unix.Statx_t) error {
	if t.Data && name == "" {
		return hostfs.StatData(t.FD, stx)
	}
	c := f.begin(FileStat)
	defer c.end()
	c.target(t)
	c.Encoder.Str(name)
	if err := f.exchange(c); err != nil {
		return err
	}
	c.Decoder.Stat(stx)
	return c.check()
}

// check is the error of an answer that is too short.
func (c *call) check() error {
	if c.Bad {
		return unix.EIO
	}
	return nil
}

// MaxBatch is how many components go in one exchange, MaxDirents how many bytes
// of directory entries.
const (
	MaxBatch   = 64
	MaxDirents = 64 << 10
)

// StatWalk implements hostfs.Backend.
func (f *Files) StatWalk(dir int, names []string) ([]unix.Statx_t, error) {
	c := f.begin(FileStatWalk)
	defer c.end()
	c.Encoder.U32(uint32(dir))
	c.Encoder.Names(names[:min(len(names), MaxBatch)])
	if err := f.exchange(c); err != nil {
		return nil, err
	}
	werr, n := c.Decoder.U32(), int(c.Decoder.U16())
	found := make([]unix.Statx_t, 0, min(n, MaxBatch))
	for range n {
		var stx unix.Statx_t
		if c.Decoder.Stat(&stx); c.Bad {
			return found, unix.EIO
		}
		found = append(found, stx)
	}
	if werr != 0 {
		return found, unix.Errno(werr)
	}
	return found, nil
}

// Walk implements hostfs.Backend.
func (f *Files) Walk(dir int, names []string, stat bool) (steps []hostfs.Step, err error) {
	for len(names) > 0 && err == nil {
		n := min(len(names), MaxBatch)
		var more []hostfs.Step
		more, err = f.walk(dir, names[:n], stat)
		steps, names = append(steps, more...), names[n:]
		if len(steps) > 0 {
			dir = steps[len(steps)-1].Ref
		}
	}
	return steps, err
}

func (f *Files) walk(dir int, names []string, stat bool) ([]hostfs.Step, error) {
	c := f.begin(FileWalk)
	defer c.end()
	c.Encoder.U32(uint32(dir))
	c.Encoder.Names(names)
	c.Encoder.Bool(stat)
	if err := f.exchange(c); err != nil {
		return nil, err
	}
	werr, n := c.Decoder.U32(), int(c.Decoder.U16())
	steps := make([]hostfs.Step, 0, min(n, MaxBatch))
	for range n {
		var s hostfs.Step
		ref, err := c.ref()
		if err != nil {
			return steps, err
		}
		s.Ref = ref
		if stat {
			c.Decoder.Stat(&s.Stat)
		}
		steps = append(steps, s)
	}
	switch {
	case c.Bad:
		return steps, unix.EIO
	case werr != 0:
		return steps, unix.Errno(werr)
	}
	return steps, nil
}

// Readlink implements hostfs.Backend.
func (f *Files) Readlink(t hostfs.Target, name string) (string, error) {
	c := f.begin(FileReadlink)
	defer c.end()
	c.target(t)
	c.Encoder.Str(name)
	if err := f.exchange(c); err != nil {
		return "", err
	}
	s := c.Decoder.Str()
	return s, c.check()
}

// Statfs implements hostfs.Backend.
func (f *Files) Statfs(t hostfs.Target, st *unix.Statfs_t) error {
	c := f.begin(FileStatfs)
	defer c.end()
	c.target(t)
	if err := f.exchange(c); err != nil {
		return err
	}
	c.Decoder.Statfs(st)
	return c.check()
}

// Syncfs implements hostfs.Backend.
func (f *Files) Syncfs(t hostfs.Target) error {
	c := f.begin(FileSyncfs)
	c.target(t)
	return f.simple(c)
}

// Open implements hostfs.Backend.
func (f *Files) Open(t hostfs.Target, flags int) (int, error) {
	c := f.begin(FileOpen)
	c.target(t)
	c.Encoder.U32(uint32(flags))
	return f.fd(c, nil)
}

// OpenAt implements hostfs.Backend.
func (f *Files) OpenAt(dir int, name string, flags int, stx *unix.Statx_t) (int, error) {
	c := f.begin(FileOpenAt)
	c.Encoder.U32(uint32(dir))
	c.Encoder.Str(name)
	c.Encoder.U32(uint32(flags))
	c.Encoder.Bool(stx != nil)
	return f.fd(c, stx)
}

// OpenDir implements hostfs.Backend.
func (f *Files) OpenDir(dir int) (int, error) {
	c := f.begin(FileOpenDir)
	defer c.end()
	c.Encoder.U32(uint32(dir))
	if err := f.exchange(c); err != nil {
		return hostfs.NoRef, err
	}
	return c.ref()
}

// Getdents implements hostfs.Backend.
func (f *Files) Getdents(ref int, off int64, buf []byte) (int, error) {
	c := f.begin(FileGetdents)
	defer c.end()
	c.Encoder.U32(uint32(ref))
	c.Encoder.U64(uint64(off))
	c.Encoder.U32(uint32(len(buf)))
	if err := f.exchange(c); err != nil {
		return 0, err
	}
	n := copy(buf, c.Decoder.Data())
	return n, c.check()
}

// SyncDir implements hostfs.Backend.
func (f *Files) SyncDir(ref int) error {
	c := f.begin(FileSyncDir)
	c.Encoder.U32(uint32(ref))
	return f.simple(c)
}

// Create implements hostfs.Backend.
func (f *Files) Create(dir int, name string, a *hostfs.NewAttr, stx *unix.Statx_t) (int, error) {
	c := f.begin(FileCreate)
	c.Encoder.U32(uint32(dir))
	c.Encoder.Str(name)
	c.Encoder.Attr(a)
	return f.fd(c, stx)
}

// Tmpfile implements hostfs.Backend.
func (f *Files) Tmpfile(dir int, a *hostfs.NewAttr, stx *unix.Statx_t) (int, error) {
	c := f.begin(FileTmpfile)
	c.Encoder.U32(uint32(dir))
	c.Encoder.Attr(a)
	return f.fd(c, stx)
}

// Make implements hostfs.Backend.
func (f *Files) Make(dir int, name string, a *hostfs.NewAttr, stx *unix.Statx_t) error {
	return f.MakeIn(hostfs.Ref(dir), name, a, stx)
}

// MakeIn is Make in a directory that may be a descriptor of the caller's: in
// direct mode the gofer makes device nodes.
func (f *Files) MakeIn(dir hostfs.Target, name string, a *hostfs.NewAttr, stx *unix.Statx_t) error {
	c := f.begin(FileMake)
	defer c.end()
	c.target(dir)
	c.Encoder.Str(name)
	c.Encoder.Attr(a)
	if err := f.exchange(c); err != nil {
		return err
	}
	c.Decoder.Stat(stx)
	return c.check()
}

// Link implements hostfs.Backend.
func (f *Files) Link(t hostfs.Target, dir int, name string) error {
	c := f.begin(FileLink)
	c.target(t)
	c.Encoder.U32(uint32(dir))
	c.Encoder.Str(name)
	return f.simple(c)
}

// Unlink implements hostfs.Backend.
func (f *Files) Unlink(dir int, name string, flags int) error {
	c := f.begin(FileUnlink)
	c.Encoder.U32(uint32(dir))
	c.Encoder.Str(name)
	c.Encoder.U32(uint32(flags))
	return f.simple(c)
}

// Rename implements hostfs.Backend.
func (f *Files) Rename(from int, name string, to int, newName string, flags uint32) error {
	c := f.begin(FileRename)
	c.Encoder.U32(uint32(from))
	c.Encoder.Str(name)
	c.Encoder.U32(uint32(to))
	c.Encoder.Str(newName)
	c.Encoder.U32(flags)
	return f.simple(c)
}

// SetAttr implements hostfs.Backend.
func (f *Files) SetAttr(t hostfs.Target, a *hostfs.SetAttr) error {
	c := f.begin(FileSetAttr)
	c.target(t)
	c.Encoder.Bool(a.SetOwner)
	c.Encoder.U32(uint32(int32(a.UID)))
	c.Encoder.U32(uint32(int32(a.GID)))
	c.Encoder.Bool(a.SetMode)
	c.Encoder.U32(a.Mode)
	c.Encoder.Bool(a.SetTimes)
	c.Encoder.B = append(c.Encoder.B, abi.SliceBytes(a.Times[:])...)
	return f.simple(c)
}

// SetAttr reads a SetAttr.
func (d *Decoder) SetAttr() *hostfs.SetAttr {
	a := &hostfs.SetAttr{SetOwner: d.Bool(), UID: int(int32(d.U32())), GID: int(int32(d.U32())), SetMode: d.Bool(), Mode: d.U32(), SetTimes: d.Bool()}
	b := abi.SliceBytes(a.Times[:])
	copy(b, d.take(len(b)))
	return a
}

// Getxattr implements hostfs.Backend.
func (f *Files) Getxattr(t hostfs.Target, name string) ([]byte, error) {
	c := f.begin(FileGetxattr)
	defer c.end()
	c.target(t)
	c.Encoder.Str(name)
	if err := f.exchange(c); err != nil {
		return nil, err
	}
	v := append([]byte{}, c.Decoder.Data()...)
	return v, c.check()
}

// Setxattr implements hostfs.Backend.
func (f *Files) Setxattr(t hostfs.Target, name string, value []byte, flags int) error {
	c := f.begin(FileSetxattr)
	c.target(t)
	c.Encoder.Str(name)
	c.Encoder.Data(value)
	c.Encoder.U32(uint32(flags))
	return f.simple(c)
}

// Listxattr implements hostfs.Backend.
func (f *Files) Listxattr(t hostfs.Target) ([]string, error) {
	c := f.begin(FileListxattr)
	defer c.end()
	c.target(t)
	if err := f.exchange(c); err != nil {
		return nil, err
	}
	var names []string
	for range int(c.Decoder.U16()) {
		if names = append(names, c.Decoder.Str()); c.Bad {
			return nil, unix.EIO
		}
	}
	return names, c.check()
}

// Removexattr implements hostfs.Backend.
func (f *Files) Removexattr(t hostfs.Target, name string) error {
	c := f.begin(FileRemovexattr)
	c.target(t)
	c.Encoder.Str(name)
	return f.simple(c)
}

// Connect implements hostfs.Backend.
func (f *Files) Connect(t hostfs.Target, typ int) (int, error) {
	c := f.begin(FileConnect)
	c.target(t)
	c.Encoder.U32(uint32(typ))
	return f.fd(c, nil)
}

// Bind implements hostfs.Backend.
func (f *Files) Bind(dir int, name string, typ int, a *hostfs.NewAttr, stx *unix.Statx_t) (int, error) {
	c := f.begin(FileBind)
	c.Encoder.U32(uint32(dir))
	c.Encoder.Str(name)
	c.Encoder.U32(uint32(typ))
	c.Encoder.Attr(a)
	return f.fd(c, stx)
}

// Inotify implements hostfs.Backend.
func (f *Files) Inotify() (int, error) { return f.fd(f.begin(FileInotify), nil) }

// Watch implements hostfs.Backend.
func (f *Files) Watch(t hostfs.Target, mask uint32) (int, error) {
	c := f.begin(FileWatch)
	defer c.end()
	c.target(t)
	c.Encoder.U32(mask)
	if err := f.exchange(c); err != nil {
		return -1, err
	}
	wd := int(int32(c.Decoder.U32()))
	return wd, c.check()
}

// Unwatch implements hostfs.Backend.
func (f *Files) Unwatch(wd int) {
	c := f.begin(FileUnwatch)
	c.Encoder.U32(uint32(int32(wd)))
	_ = f.simple(c)
}
