package gofer

import (
	"time"

	"golang.org/x/sys/unix"

	"runsc/pkg/hostfs"
	"runsc/sentry/vfs"
)

// hiddenAttributes tell of the host's mounts.
const hiddenAttributes = unix.STATX_ATTR_MOUNT_ROOT | unix.STATX_ATTR_AUTOMOUNT

// Stat implements vfs.Inode. With mask 0, a permission check, the attributes
// of the walk that led here are good enough.
func (i *inode) Stat(c vfs.Caller, mask uint32) (vfs.Stat, error) {
	i.mu.Lock()
	if mask == 0 || i.fs.exclusive && i.fresh && i.writeMapped == 0 || i.justSeenLocked(c) {
		st := i.guest
		i.mu.Unlock()
		return st, nil
	}
	i.mu.Unlock()
	if err := i.refresh(); err != nil {
		return vfs.Stat{}, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.guest, nil
}

// justSeen is how old attributes of a shared mount may be when the call whose
// walk has read them uses them: shorter than it takes anybody outside to
// change a file and tell the guest.
const justSeen = 20 * time.Microsecond

// seen marks the attributes as read by a walk of c.
func (i *inode) seen(c vfs.Caller) {
	if c == nil || i.fs.exclusive {
		return
	}
	i.mu.Lock()
	i.seenBy, i.seenAt = c.Waiter(), time.Now()
	i.mu.Unlock()
}

// justSeenLocked tells, once, whether c's walk has just read the attributes.
func (i *inode) justSeenLocked(c vfs.Caller) bool {
	if i.seenBy == nil || c == nil {
		return false
	}
	ok := i.seenBy == c.Waiter() && time.Since(i.seenAt) < justSeen
	i.seenBy = nil
	return ok
}

// refresh asks the host for the attributes.
func (i *inode) refresh() error {
	i.mu.Lock()
	changes := i.changes
	i.mu.Unlock()
	return i.at(func(t hostfs.Target, name string) error {
		var stx unix.Statx_t
		err := i.fs.client.backend.Stat(t, name, &stx)
		if err == unix.ENOENT {
			return unix.ESTALE
		}
		if err != nil {
			return err
		}
		if name != "" && !i.fs.exclusive && i.fs.keyOf(&stx) != i.key {
			return unix.ESTALE
		}
		i.mu.Lock()
		i.setLocked(&stx)
		i.fresh = i.changes == changes
		i.mu.Unlock()
		return nil
	})
}

// update takes attributes that were just read from the host.
func (i *inode) update(stx *unix.Statx_t) {
	i.mu.Lock()
	i.setLocked(stx)
	i.fresh = true
	i.mu.Unlock()
}

// stale is called after each change that went to the host.
func (i *inode) stale() {
	i.mu.Lock()
	i.fresh = false
	i.seenBy = nil
	i.changes++
	i.mu.Unlock()
}

func (i *inode) setLocked(stx *unix.Statx_t) {
	s := &i.guest
	s.Mask = unix.STATX_BASIC_STATS | stx.Mask&unix.STATX_BTIME
	s.Mode = uint32(stx.Mode)
	i.maybeSetID = s.Mode&setIDBits != 0
	s.UID, s.GID = stx.Uid, stx.Gid
	s.Nlink = stx.Nlink
	s.Size, s.Blocks, s.BlockSize = stx.Size, stx.Blocks, stx.Blksize
	s.Rdev = unix.Mkdev(stx.Rdev_major, stx.Rdev_minor)
	s.Atime, s.Mtime = timespec(stx.Atime), timespec(stx.Mtime)
	s.Ctime, s.Btime = timespec(stx.Ctime), timespec(stx.Btime)
	s.Attributes = stx.Attributes &^ hiddenAttributes
}

// SetStat implements vfs.Inode.
func (i *inode) SetStat(c vfs.Caller, s *vfs.SetStat) error {
	defer i.changing().done()
	defer i.stale()
	if s.Size != nil {
		if err := i.truncate(c, int64(*s.Size)); err != nil {
			return err
		}
	}
	if s.Mode == nil && s.UID == nil && s.GID == nil && s.Atime == nil && s.Mtime == nil && !s.AtimeNow && !s.MtimeNow {
		return nil
	}
	h := i.fs.client.fds.getAny(i)
	if h == nil {
		var err error
		if h, err = i.open(byPath); err != nil {
			return err
		}
	}
	defer i.fs.put(h)
	a := hostfs.SetAttr{UID: idOrKeep(s.UID), GID: idOrKeep(s.GID)}
	a.SetOwner = s.UID != nil || s.GID != nil
	if s.Mode != nil {
		defer i.forgetACL()
		a.SetMode, a.Mode = true, *s.Mode&0o7777
		if a.Mode&setIDBits != 0 {
			i.mu.Lock()
			i.maybeSetID = true
			i.mu.Unlock()
		}
	}
	if s.Atime != nil || s.Mtime != nil || s.AtimeNow || s.MtimeNow {
		a.SetTimes, a.Times = true, utimes(s)
	}
	return i.fs.client.backend.SetAttr(h.target(), &a)
}

// idOrKeep returns the id for chown, -1 for no change.
func idOrKeep(id *uint32) int {
	if id == nil {
		return -1
	}
	return int(*id)
}

// truncate sets the size of a regular file.
func (i *inode) truncate(c vfs.Caller, size int64) error {
	if i.typ != unix.S_IFREG {
		return unix.EINVAL
	}
	h, err := i.open(forWrite)
	if err != nil {
		return err
	}
	defer i.fs.put(h)
	bits := i.writing(c)
	if err := unix.Ftruncate(h.fd, size); err != nil {
		return err
	}
	i.written(bits, h)
	i.invalidate(size)
	return nil
}

// invalidate drops what address spaces have mapped beyond a new end of file:
// the host does that for its own pages, but not for private copies.
func (i *inode) invalidate(size int64) {
	const pageMask = 4095
	from := (size + pageMask) &^ pageMask
	i.mu.Lock()
	maps := append([]mapping(nil), i.mappings...)
	i.mu.Unlock()
	for _, m := range maps {
		off := max(from, m.off)
		if end := m.off + m.n; off < end {
			m.space.Invalidate(m.m, off, end-off, true)
		}
	}
}
