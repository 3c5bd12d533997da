package overlay

import (
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// copyUp makes sure that n has an upper inode, and its directories too. noData
// leaves out the bytes of a file about to be truncated.
func (n *node) copyUp(c vfs.Caller, noData bool) error {
	if n.upper() != nil {
		return nil
	}
	if n.fs.root.upper() == nil {
		return unix.EROFS
	}
	if err := n.parent.copyUp(c, false); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.upper() != nil {
		return nil
	}
	sys := n.fs.as(c)
	low := n.lower[0]
	st, err := low.Stat(sys, unix.STATX_BASIC_STATS)
	if err != nil {
		return err
	}
	// The directory's times are none of this change's business.
	dir := n.parent.upper()
	ds, err := dir.Stat(sys, unix.STATX_BASIC_STATS)
	if err != nil {
		return err
	}
	up, err := n.copyNode(sys, low, &st, noData)
	if err != nil {
		return err
	}
	_ = dir.SetStat(sys, &vfs.SetStat{Atime: &ds.Atime, Mtime: &ds.Mtime})
	n.origin.Store(&origin{st.Dev, st.Ino})
	n.setUpper(up)
	if n.self != nil {
		n.fs.share(n.self, up)
	}
	return nil
}

// copyNode makes the upper inode, with its name unless that is gone. A file
// gets its name last, so that a failure leaves nothing behind.
func (n *node) copyNode(c vfs.Caller, low vfs.Inode, st *vfs.Stat, noData bool) (vfs.Inode, error) {
	dir := n.parent.upper().(vfs.Dir)
	a := vfs.CreateAttr{Mode: st.Mode, UID: st.UID, GID: st.GID}
	kind := st.Mode & unix.S_IFMT
	if kind == unix.S_IFREG || n.orphan.Load() {
		return n.copyUnnamed(c, dir, low, st, a, noData)
	}
	var up vfs.Inode
	var err error
	switch kind {
	case unix.S_IFDIR:
		up, err = dir.Mkdir(c, n.name, a)
	case unix.S_IFLNK:
		var target string
		if target, err = low.(vfs.Symlink).Readlink(c); err == nil {
			up, err = dir.Symlink(c, n.name, target, a)
		}
	default:
		up, err = dir.Mknod(c, n.name, a, st.Rdev)
	}
	if err != nil {
		return nil, err
	}
	if err := n.fs.copyAttributes(c, up, low, st); err != nil {
		if kind == unix.S_IFDIR {
			_ = dir.Rmdir(c, n.name, up)
		} else {
			_ = dir.Unlink(c, n.name, up)
		}
		up.DecRef()
		return nil, err
	}
	return up, nil
}

// copyUnnamed copies to a file without a name and links that.
func (n *node) copyUnnamed(c vfs.Caller, dir vfs.Dir, low vfs.Inode, st *vfs.Stat, a vfs.CreateAttr, noData bool) (vfs.Inode, error) {
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		// A removed symlink or node has no home in the upper layer; nobody
		// but its holders could tell (Linux copies it to the work directory).
		return nil, unix.ENOENT
	}
	maker, ok := dir.(vfs.TmpfileMaker)
	if !ok {
		return nil, unix.EOPNOTSUPP
	}
	up, err := maker.Tmpfile(c, a)
	if err != nil {
		return nil, err
	}
	if !noData {
		err = copyData(c, up, low, int64(st.Size))
	}
	if err == nil {
		err = n.fs.copyAttributes(c, up, low, st)
	}
	if err == nil && !n.orphan.Load() {
		err = dir.Link(c, n.name, up)
	}
	if err != nil {
		up.DecRef()
		return nil, err
	}
	return up, nil
}

// copyAttributes copies extended attributes, mode and times, and notes the
// inode number.
func (fs *FS) copyAttributes(c vfs.Caller, up, low vfs.Inode, st *vfs.Stat) error {
	if x, ok := low.(vfs.Xattrer); ok {
		to, canSet := up.(vfs.Xattrer)
		names, err := x.Listxattr(c)
		if err != nil && err != unix.EOPNOTSUPP {
			return err
		}
		for _, name := range names {
			if !canSet || strings.HasPrefix(name, fs.prefix) {
				continue
			}
			v, err := x.Getxattr(c, name)
			if err != nil {
				continue
			}
			// Linux fails only for what the caller would miss.
			if err := to.Setxattr(c, name, v, 0); err != nil && err != unix.EOPNOTSUPP && err != unix.EPERM {
				return err
			}
		}
	}
	err := fs.setPrivateXattr(c, up, xattrOrigin, (&origin{st.Dev, st.Ino}).encode())
	if err != nil && fs.prefix == xattrTrusted {
		return err // user attributes are for files and directories only
	}
	mode := st.Mode & 0o7777
	set := vfs.SetStat{Atime: &st.Atime, Mtime: &st.Mtime}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		set.Mode = &mode
	}
	return up.SetStat(c, &set)
}

// inherit makes the root of a new upper layer look like the one below, as if
// it had been copied up.
func (d *dirNode) inherit(c vfs.Caller, low vfs.Inode) error {
	up := d.upper()
	if o := d.fs.readOrigin(c, up); o != nil {
		d.origin.Store(o)
		return nil
	}
	st, err := low.Stat(c, unix.STATX_BASIC_STATS)
	if err != nil {
		return err
	}
	if err := up.SetStat(c, &vfs.SetStat{UID: &st.UID, GID: &st.GID}); err != nil {
		return err
	}
	if err := d.fs.copyAttributes(c, up, low, &st); err != nil {
		return err
	}
	d.origin.Store(&origin{st.Dev, st.Ino})
	return nil
}

// copyChunk is how much of a file is copied at once.
const copyChunk = 256 << 10

var copyBufs = sync.Pool{New: func() any { return new([copyChunk]byte) }}

// copyData copies size bytes from one inode to another, holes left out where
// the lower layer can tell.
func copyData(c vfs.Caller, to, from vfs.Inode, size int64) error {
	if size == 0 {
		return nil
	}
	in, err := openLayer(c, from, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer in.Release()
	out, err := openLayer(c, to, unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer out.Release()
	r, rok := in.(vfs.ReaderAt)
	w, wok := out.(vfs.WriterAt)
	if !rok || !wok {
		return unix.EIO
	}
	seeker, _ := in.(vfs.Seeker)
	buf := copyBufs.Get().(*[copyChunk]byte)
	defer copyBufs.Put(buf)
	for off := int64(0); off < size; {
		if seeker != nil {
			next, err := seeker.Seek(c, nil, off, unix.SEEK_DATA)
			if err == unix.ENXIO {
				break
			}
			if err == nil && next > off {
				off = next
			}
		}
		dst := mem.KernelBuf(buf[:min(copyChunk, size-off)])
		n, err := r.ReadAt(c, nil, &dst, off)
		if n > 0 {
			src := mem.KernelBuf(buf[:n])
			if _, _, werr := w.WriteAt(c, nil, &src, off); werr != nil {
				return werr
			}
			off += int64(n)
		}
		if err != nil {
			return err
		}
		if n == 0 {
			break // shorter than it said
		}
	}
	// A hole at the end.
	n := uint64(size)
	return to.SetStat(c, &vfs.SetStat{Size: &n})
}

func openLayer(c vfs.Caller, i vfs.Inode, flags uint32) (vfs.FileOps, error) {
	return i.Open(c, nil, flags)
}
