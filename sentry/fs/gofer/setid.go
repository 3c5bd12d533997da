package gofer

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/hostfs"
	"runsc/sentry/vfs"
)

// setID is what is to become of the set-id bits of a file that is written.
type setID struct {
	before, want uint32
}

const setIDBits = unix.S_ISUID | unix.S_ISGID

// writing is called before a write or a change of size by c. The host takes
// set-id bits away whoever writes, as the Sentry has no capability there that
// keeps them; Linux leaves them to a caller with CAP_FSETID. Only files that
// may have such bits cost anything, and the host is asked for the mode that
// counts: bits that somebody outside took away must not come back.
func (i *inode) writing(c vfs.Caller) (s setID) {
	if c == nil || i.typ != unix.S_IFREG {
		return s
	}
	i.mu.Lock()
	maybe, known := i.maybeSetID || i.guest.Mode&setIDBits != 0, i.fs.exclusive && i.fresh
	i.mu.Unlock()
	if !maybe || !known && i.refresh() != nil {
		return s
	}
	i.mu.Lock()
	mode, gid := i.guest.Mode, i.guest.GID
	i.mu.Unlock()
	s.before = mode & setIDBits
	if s.before != 0 {
		mode, _ = vfs.WriteStripsMode(c, mode, gid)
		s.want = mode & setIDBits
	}
	return s
}

// written is called with what writing returned after the write.
func (i *inode) written(s setID, h *handle) {
	if s.before == 0 {
		return
	}
	b := i.fs.client.backend
	var stx unix.Statx_t
	if b.Stat(h.target(), "", &stx) != nil {
		return
	}
	after := uint32(stx.Mode)
	mode := after&^(s.before&^s.want) | s.want
	if mode != after {
		// A failure leaves less than Linux would.
		_ = b.SetAttr(h.target(), &hostfs.SetAttr{UID: -1, GID: -1, SetMode: true, Mode: mode & 0o7777})
	}
}
