package cred

import "golang.org/x/sys/unix"

// Caps is a capability set, bit n for capability number n.
type Caps uint64

// AllCaps has every capability that capabilities(7) lists up to
// CAP_CHECKPOINT_RESTORE.
const AllCaps = Caps(1)<<(unix.CAP_LAST_CAP+1) - 1

// Has tells whether the set holds capability c (unix.CAP_*).
func (s Caps) Has(c int) bool { return s&(1<<uint(c)) != 0 }

// Creds are the credentials of a task. A *Creds is immutable once shared:
// changing calls copy it and replace the task's pointer.
type Creds struct {
	UID, EUID, SUID, FSUID uint32
	GID, EGID, SGID, FSGID uint32
	Groups                 []uint32

	Permitted, Effective, Inheritable, Bounding, Ambient Caps
	SecureBits                                           uint32
	NoNewPrivs                                           bool
}

// Has tells whether c is in the effective set.
func (c *Creds) Has(capability int) bool { return c.Effective.Has(capability) }

// InGroup tells whether gid is the file system group or a supplementary one.
func (c *Creds) InGroup(gid uint32) bool {
	if c.FSGID == gid {
		return true
	}
	for _, g := range c.Groups {
		if g == gid {
			return true
		}
	}
	return false
}

// Copy returns a private copy that the caller may change.
func (c *Creds) Copy() *Creds {
	n := *c
	n.Groups = append([]uint32(nil), c.Groups...)
	return &n
}
