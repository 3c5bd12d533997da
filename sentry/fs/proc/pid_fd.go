package proc

import (
	"bytes"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"runsc/sentry/fs/anon"
	"runsc/sentry/fs/pseudo"
	"runsc/sentry/kernel"
	"runsc/sentry/vfs"
)

// withFiles calls f with the descriptor table, if there is one left.
func (p process) withFiles(f func(*vfs.FDTable)) bool {
	if p.task != nil {
		return p.task.WithFiles(f)
	}
	return p.tg.WithFiles(f)
}

// file returns a new reference to an open file of p, and its descriptor flag.
func (p process) file(fd int32) (f *vfs.File, cloexec bool) {
	p.withFiles(func(ft *vfs.FDTable) {
		g, flags, err := ft.GetFlags(fd)
		if err == nil {
			f, cloexec = g, flags&unix.FD_CLOEXEC != 0
		}
	})
	return f, cloexec
}

// fdDir is /proc/PID/fd or, with info, /proc/PID/fdinfo.
type fdDir struct {
	process
	info bool
}

// Info implements pseudo.Node. The size of fd is the number of descriptors.
func (d fdDir) Info(vfs.Caller) (pseudo.Info, error) {
	perm := uint32(0o500)
	if d.info {
		perm = 0o555
	}
	i, err := d.process.info(unix.S_IFDIR | perm)
	i.Nlink = 2
	if !d.info {
		d.withFiles(func(ft *vfs.FDTable) { i.Size = uint64(ft.Count()) })
	}
	return i, err
}

// Permits implements pseudo.Permitter: a process may always see its own
// descriptors, whatever ids it has by now (proc_fd_permission).
func (d fdDir) Permits(c vfs.Caller, _ uint32) bool {
	t, ok := c.(*kernel.Task)
	return ok && t.ThreadGroup() == d.tg
}

// Open implements pseudo.Opener: it only checks.
func (d fdDir) Open(c vfs.Caller, flags uint32) (vfs.FileOps, error) {
	if !mayRead(c, d.process) {
		return nil, unix.EACCES
	}
	return nil, nil
}

// Lookup implements pseudo.Dir.
func (d fdDir) Lookup(c vfs.Caller, name string) (pseudo.Node, error) {
	fd, ok := parseID(name)
	if !ok && name != "0" {
		return nil, unix.ENOENT
	}
	if !mayRead(c, d.process) {
		return nil, unix.EACCES
	}
	f, _ := d.file(fd)
	if f == nil {
		return nil, unix.ENOENT
	}
	f.DecRef()
	if d.info {
		return fdInfo{d.process, fd}, nil
	}
	return fdLink{d.process, fd}, nil
}

// Each implements pseudo.Dir. Positions are descriptors plus one.
func (d fdDir) Each(c vfs.Caller, pos int64, emit func(string, uint8, int64) bool) error {
	if !d.alive() {
		return unix.ENOENT
	}
	var fds []int32
	d.withFiles(func(ft *vfs.FDTable) {
		ft.Each(func(fd int32, _ *vfs.File, _ bool) {
			if int64(fd) >= pos {
				fds = append(fds, fd)
			}
		})
	})
	typ := uint8(unix.DT_LNK)
	if d.info {
		typ = unix.DT_REG
	}
	for _, fd := range fds {
		if !emit(strconv.Itoa(int(fd)), typ, int64(fd)+1) {
			return nil
		}
	}
	return nil
}

// fdLink is /proc/PID/fd/N.
type fdLink struct {
	process
	fd int32
}

// Info implements pseudo.Node. The mode tells what the file was opened for.
func (l fdLink) Info(vfs.Caller) (pseudo.Info, error) {
	f, _ := l.file(l.fd)
	if f == nil {
		return pseudo.Info{}, unix.ENOENT
	}
	defer f.DecRef()
	mode := uint32(unix.S_IFLNK)
	if f.Readable() {
		mode |= 0o500
	}
	if f.Writable() {
		mode |= 0o300
	}
	i, err := l.info(mode)
	i.Size = 64
	return i, err
}

// Readlink implements pseudo.Link.
func (l fdLink) Readlink(c vfs.Caller) (string, error) {
	p, err := l.Follow(c)
	if err != nil {
		return "", err
	}
	defer p.DecRef()
	return pathFor(c, p), nil
}

// Follow implements pseudo.Magic.
func (l fdLink) Follow(c vfs.Caller) (vfs.Path, error) {
	if !mayRead(c, l.process) {
		return vfs.Path{}, unix.EACCES
	}
	f, _ := l.file(l.fd)
	if f == nil {
		return vfs.Path{}, unix.ENOENT
	}
	defer f.DecRef()
	p := f.Path()
	p.IncRef()
	return p, nil
}

// fdInfo is /proc/PID/fdinfo/N.
type fdInfo struct {
	process
	fd int32
}

// Info implements pseudo.Node.
func (n fdInfo) Info(vfs.Caller) (pseudo.Info, error) { return n.info(unix.S_IFREG | 0o444) }

// Read implements pseudo.Reader. Some kinds of files have lines of their own.
func (n fdInfo) Read(c vfs.Caller, b *bytes.Buffer) error {
	f, cloexec := n.file(n.fd)
	if f == nil {
		return unix.ENOENT
	}
	defer f.DecRef()
	const largeFile = 0o100000 // O_LARGEFILE, which every file has on a 64-bit kernel
	flags := f.StatusFlags() | largeFile
	if cloexec {
		flags |= unix.O_CLOEXEC
	}
	ino, mount := uint64(0), uint64(0)
	if st, err := f.Inode().Stat(c, unix.STATX_INO); err == nil {
		ino = st.Ino
	}
	if m := f.Path().Mount; m != nil {
		mount = m.ID()
	}
	fmt.Fprintf(b, "pos:\t%d\nflags:\t0%o\nmnt_id:\t%d\nino:\t%d\n", f.Offset(), flags, mount, ino)
	switch x := f.Ops().(type) {
	case *anon.Eventfd:
		fmt.Fprintf(b, "eventfd-count: %16x\n", x.Count())
	case *anon.Signalfd:
		fmt.Fprintf(b, "sigmask:\t%016x\n", x.Mask())
	case *anon.Timerfd:
		value, interval := x.Get()
		fmt.Fprintf(b, "clockid: %d\nticks: 0\nsettime flags: 00\nit_value: (%d, %d)\nit_interval: (%d, %d)\n",
			x.ClockID(), value/1e9, value%1e9, interval/1e9, interval%1e9)
	}
	return nil
}
