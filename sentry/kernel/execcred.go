package kernel

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"runsc/sentry/cred"
	"runsc/sentry/vfs"
)

// fileCaps is a parsed security.capability attribute.
type fileCaps struct {
	permitted, inheritable cred.Caps
	effective              bool
}

// execCreds computes the credentials after execve(2) of f, and whether the
// program is to distrust its environment (AT_SECURE). It follows
// "Transformation of capabilities during execve()" of capabilities(7) and
// cap_bprm_creds_from_file. EPERM for a file that asks for capabilities the
// bounding set refuses.
func (t *Task) execCreds(f *vfs.File, st *vfs.Stat) (n *cred.Creds, secure bool, err error) {
	old := t.Cred()
	n = old.Copy()
	p := f.Path()
	maySuid := p.Mount == nil || p.Mount.Flags()&unix.MS_NOSUID == 0
	if maySuid && !old.NoNewPrivs {
		if st.Mode&unix.S_ISUID != 0 {
			n.EUID = st.UID
		}
		if st.Mode&(unix.S_ISGID|unix.S_IXGRP) == unix.S_ISGID|unix.S_IXGRP {
			n.EGID = st.GID
		}
	}
	var fc *fileCaps
	if maySuid {
		fc = t.fileCaps(f)
	}
	effective := false
	n.Permitted = 0
	if fc != nil {
		n.Permitted = old.Bounding&fc.permitted | old.Inheritable&fc.inheritable
		if effective = fc.effective; effective && fc.permitted&^n.Permitted != 0 {
			return nil, false, unix.EPERM
		}
	}
	// Root gets all, but for a set-uid-root file with capabilities of its own.
	if n.SecureBits&cred.SecNoRoot == 0 && !(fc != nil && n.UID != 0 && n.EUID == 0) {
		if n.EUID == 0 || n.UID == 0 {
			n.Permitted = old.Bounding | old.Inheritable
		}
		if n.EUID == 0 {
			effective = true
		}
	}
	setid := n.EUID != old.UID || n.EGID != old.GID
	if (setid || n.Permitted&^old.Permitted != 0) && (old.NoNewPrivs || t.fsSharedOutside()) {
		if !old.Has(unix.CAP_SETUID) || old.NoNewPrivs {
			n.EUID, n.EGID = n.UID, n.GID
		}
		n.Permitted &= old.Permitted
	}
	n.SUID, n.FSUID = n.EUID, n.EUID
	n.SGID, n.FSGID = n.EGID, n.EGID
	if fc != nil || setid {
		n.Ambient = 0
	}
	n.Permitted |= n.Ambient
	n.Effective = n.Ambient
	if effective {
		n.Effective = n.Permitted
	}
	n.SecureBits &^= cred.SecKeepCaps
	secure = setid || n.UID != 0 && (effective || n.Permitted&^n.Ambient != 0)
	return n, secure, nil
}

// fsSharedOutside tells whether root and working directory are shared with
// another process, which could change them under a set-id program
// (LSM_UNSAFE_SHARE).
func (t *Task) fsSharedOutside() bool {
	return t.fs != nil && t.fs.Shared() && len(t.tg.Tasks()) <= 1
}

// fileCaps reads a file's capabilities, nil if it has none
// (get_vfs_caps_from_disk). Broken ones are ignored, as there.
func (t *Task) fileCaps(f *vfs.File) *fileCaps {
	x, ok := f.Inode().(vfs.Xattrer)
	if !ok {
		return nil
	}
	b, err := x.Getxattr(t, "security.capability")
	if err != nil || len(b) < 12 {
		return nil
	}
	word := func(i int) cred.Caps { return cred.Caps(binary.LittleEndian.Uint32(b[4*i:])) }
	magic := uint32(word(0))
	var fc fileCaps
	fc.effective = magic&1 != 0
	fc.permitted, fc.inheritable = word(1), word(2)
	switch magic &^ 1 {
	case 0x01000000:
		if len(b) != 12 {
			return nil
		}
	case 0x02000000, 0x03000000:
		if len(b) != 20 && len(b) != 24 {
			return nil
		}
		fc.permitted |= word(3) << 32
		fc.inheritable |= word(4) << 32
		if len(b) == 24 && word(5) != 0 {
			return nil // of another user namespace's root
		}
	default:
		return nil
	}
	fc.permitted &= cred.AllCaps
	fc.inheritable &= cred.AllCaps
	return &fc
}
