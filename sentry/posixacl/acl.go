package posixacl

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"runsc/sentry/cred"
)

// Names of the attributes that hold lists.
const (
	Access  = "system.posix_acl_access"
	Default = "system.posix_acl_default"
)

// Tags of entries, in the order that a valid list has.
const (
	userObj  = 0x01
	user     = 0x02
	groupObj = 0x04
	group    = 0x08
	maskTag  = 0x10
	other    = 0x20
)

// undefinedID is the id of entries that name nobody.
const undefinedID = ^uint32(0)

const (
	version    = 2
	headerSize = 4
	entrySize  = 8
)

type entry struct {
	tag, perm uint16
	id        uint32
}

// ACL is a list. A nil ACL is none.
type ACL struct{ entries []entry }

// Parse reads the value of an attribute: nil for one without a list or
// with one without entries, EINVAL or EOPNOTSUPP for what is no list (posix_acl_from_xattr,
// posix_acl_valid).
func Parse(b []byte) (*ACL, error) {
	if len(b) == 0 {
		return nil, nil
	}
	if len(b) < headerSize {
		return nil, unix.EINVAL
	}
	if binary.LittleEndian.Uint32(b) != version {
		return nil, unix.EOPNOTSUPP
	}
	b = b[headerSize:]
	if len(b)%entrySize != 0 {
		return nil, unix.EINVAL
	}
	if len(b) == 0 {
		return nil, nil
	}
	a := &ACL{entries: make([]entry, len(b)/entrySize)}
	for i := range a.entries {
		e := &a.entries[i]
		e.tag, e.perm = binary.LittleEndian.Uint16(b), binary.LittleEndian.Uint16(b[2:])
		e.id = binary.LittleEndian.Uint32(b[4:])
		if e.tag != user && e.tag != group {
			e.id = undefinedID
		}
		b = b[entrySize:]
	}
	if !a.valid() {
		return nil, unix.EINVAL
	}
	return a, nil
}

// valid checks order and completeness: the three entries of the mode, users
// and groups by name between them, and a mask if there are such.
func (a *ACL) valid() bool {
	last, needMask := uint16(0), false
	seen := uint16(0)
	for _, e := range a.entries {
		if e.perm&^7 != 0 {
			return false
		}
		switch e.tag {
		case userObj, groupObj, maskTag, other:
			if seen&e.tag != 0 {
				return false
			}
		case user, group:
			if e.id == undefinedID {
				return false
			}
			needMask = true
		default:
			return false
		}
		if e.tag < last {
			return false
		}
		last = e.tag
		seen |= e.tag
	}
	const must = userObj | groupObj | other
	return seen&must == must && (!needMask || seen&maskTag != 0)
}

// Encode is the value of the attribute.
func (a *ACL) Encode() []byte {
	b := binary.LittleEndian.AppendUint32(nil, version)
	for _, e := range a.entries {
		b = binary.LittleEndian.AppendUint16(b, e.tag)
		b = binary.LittleEndian.AppendUint16(b, e.perm)
		b = binary.LittleEndian.AppendUint32(b, e.id)
	}
	return b
}

// Check tells whether the list gives cr all of mask (4 read, 2 write, 1
// execute) on a file of that owner and group. Capabilities are the caller's
// business (posix_acl_permission).
func (a *ACL) Check(cr *cred.Creds, uid, gid uint32, mask uint32) bool {
	want := uint16(mask & 7)
	inGroup := false
	for _, e := range a.entries {
		switch e.tag {
		case userObj:
			if cr.FSUID == uid {
				return e.perm&want == want
			}
		case user:
			if cr.FSUID == e.id {
				return e.perm&a.mask()&want == want
			}
		case groupObj, group:
			id := e.id
			if e.tag == groupObj {
				id = gid
			}
			if cr.InGroup(id) {
				inGroup = true
				if e.perm&want == want {
					return e.perm&a.mask()&want == want
				}
			}
		case other:
			return !inGroup && e.perm&want == want
		}
	}
	return false
}

// mask is the mask entry's bits, all if there is none.
func (a *ACL) mask() uint16 {
	for _, e := range a.entries {
		if e.tag == maskTag {
			return e.perm
		}
	}
	return 7
}

// Mode is the permission bits that show the list, and whether they say all
// that it does, so that it is not needed (posix_acl_equiv_mode).
func (a *ACL) Mode() (bits uint32, all bool) {
	all = true
	hasMask := false
	for _, e := range a.entries {
		p := uint32(e.perm)
		switch e.tag {
		case userObj:
			bits |= p << 6
		case groupObj:
			if !hasMask {
				bits |= p << 3
			}
		case maskTag:
			hasMask, all = true, false
			bits = bits&^0o070 | p<<3
		case other:
			bits |= p
		default:
			all = false
		}
	}
	return bits, all
}

// with returns a copy whose entries of the mode are changed by fn: the mask
// stands for the group if there is one.
func (a *ACL) with(fn func(shift uint, perm uint16) uint16) *ACL {
	n := &ACL{entries: append([]entry{}, a.entries...)}
	groupTag := uint16(groupObj)
	for _, e := range n.entries {
		if e.tag == maskTag {
			groupTag = maskTag
		}
	}
	for i := range n.entries {
		e := &n.entries[i]
		switch e.tag {
		case userObj:
			e.perm = fn(6, e.perm)
		case groupTag:
			e.perm = fn(3, e.perm)
		case other:
			e.perm = fn(0, e.perm)
		}
	}
	return n
}

// Chmod returns the list after chmod(2) to mode.
func (a *ACL) Chmod(mode uint32) *ACL {
	return a.with(func(shift uint, _ uint16) uint16 { return uint16(mode>>shift) & 7 })
}

// Create returns the access list of a new file in a directory with a as its
// default, nil if the mode says it all, and the file's mode; mode is the one
// asked for (posix_acl_create).
func (a *ACL) Create(mode uint32) (*ACL, uint32) {
	n := a.with(func(shift uint, perm uint16) uint16 { return perm & uint16(mode>>shift) & 7 })
	bits, all := n.Mode()
	mode = mode&^0o777 | bits
	if all {
		return nil, mode
	}
	return n, mode
}
