package syscalls

import (
	"slices"

	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/sentry/cred"
	"runsc/sentry/kernel"
)

// maxGroups is NGROUPS_MAX.
const maxGroups = 65536

// keepID is the argument that leaves an id as it is.
const keepID = ^uint32(0)

func sysGetuid(t *kernel.Task, a Args) (uintptr, error)  { return uintptr(t.Cred().UID), nil }
func sysGeteuid(t *kernel.Task, a Args) (uintptr, error) { return uintptr(t.Cred().EUID), nil }
func sysGetgid(t *kernel.Task, a Args) (uintptr, error)  { return uintptr(t.Cred().GID), nil }
func sysGetegid(t *kernel.Task, a Args) (uintptr, error) { return uintptr(t.Cred().EGID), nil }

// setUIDs commits changed user ids with what they do to capabilities
// (cap_task_fix_setuid).
func setUIDs(t *kernel.Task, old, n *cred.Creds) (uintptr, error) {
	n.FSUID = n.EUID
	if n.SecureBits&cred.SecNoSetuidFixup == 0 {
		fixupCaps(old, n)
	}
	t.SetCred(n)
	return 0, nil
}

// fixupCaps is "Effect of user ID changes on capabilities" of capabilities(7).
func fixupCaps(old, n *cred.Creds) {
	hadRoot := old.UID == 0 || old.EUID == 0 || old.SUID == 0
	hasRoot := n.UID == 0 || n.EUID == 0 || n.SUID == 0
	if hadRoot && !hasRoot {
		if n.SecureBits&cred.SecKeepCaps == 0 {
			n.Permitted, n.Effective = 0, 0
		}
		n.Ambient = 0
	}
	if old.EUID == 0 && n.EUID != 0 {
		n.Effective = 0
	}
	if old.EUID != 0 && n.EUID == 0 {
		n.Effective = n.Permitted
	}
}

// sysSetuid implements setuid(2).
func sysSetuid(t *kernel.Task, a Args) (uintptr, error) {
	uid := a.Uint(0)
	old := t.Cred()
	if uid == keepID {
		return 0, unix.EINVAL
	}
	n := old.Copy()
	switch {
	case old.Has(unix.CAP_SETUID):
		n.UID, n.SUID = uid, uid
	case uid != old.UID && uid != old.SUID:
		return 0, unix.EPERM
	}
	n.EUID = uid
	return setUIDs(t, old, n)
}

// sysSetreuid implements setreuid(2).
func sysSetreuid(t *kernel.Task, a Args) (uintptr, error) {
	ruid, euid := a.Uint(0), a.Uint(1)
	old := t.Cred()
	n := old.Copy()
	priv := old.Has(unix.CAP_SETUID)
	if ruid != keepID {
		if n.UID = ruid; ruid != old.UID && ruid != old.EUID && !priv {
			return 0, unix.EPERM
		}
	}
	if euid != keepID {
		if n.EUID = euid; euid != old.UID && euid != old.EUID && euid != old.SUID && !priv {
			return 0, unix.EPERM
		}
	}
	if ruid != keepID || euid != keepID && euid != old.UID {
		n.SUID = n.EUID
	}
	return setUIDs(t, old, n)
}

// sysSetresuid implements setresuid(2).
func sysSetresuid(t *kernel.Task, a Args) (uintptr, error) {
	old := t.Cred()
	n := old.Copy()
	for i, id := range []*uint32{&n.UID, &n.EUID, &n.SUID} {
		v := a.Uint(i)
		if v == keepID {
			continue
		}
		if v != old.UID && v != old.EUID && v != old.SUID && !old.Has(unix.CAP_SETUID) {
			return 0, unix.EPERM
		}
		*id = v
	}
	return setUIDs(t, old, n)
}

// sysGetresuid implements getresuid(2).
func sysGetresuid(t *kernel.Task, a Args) (uintptr, error) {
	c := t.Cred()
	return copyOutIDs(t, a, c.UID, c.EUID, c.SUID)
}

func copyOutIDs(t *kernel.Task, a Args, ids ...uint32) (uintptr, error) {
	for i := range ids {
		if err := t.CopyOut(a.Addr(i), abi.Bytes(&ids[i])); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// sysSetfsuid implements setfsuid(2), which returns the old id always.
func sysSetfsuid(t *kernel.Task, a Args) (uintptr, error) {
	old := t.Cred()
	id := a.Uint(0)
	if id == keepID || id != old.UID && id != old.EUID && id != old.SUID && id != old.FSUID && !old.Has(unix.CAP_SETUID) {
		return uintptr(old.FSUID), nil
	}
	n := old.Copy()
	n.FSUID = id
	// The capabilities that go with file access follow the id (cap_task_fix_setuid).
	const fsCaps = cred.Caps(1<<unix.CAP_CHOWN | 1<<unix.CAP_MKNOD | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH |
		1<<unix.CAP_FOWNER | 1<<unix.CAP_FSETID | 1<<unix.CAP_LINUX_IMMUTABLE | 1<<unix.CAP_MAC_OVERRIDE)
	if n.SecureBits&cred.SecNoSetuidFixup == 0 {
		switch {
		case old.FSUID == 0 && id != 0:
			n.Effective &^= fsCaps
		case old.FSUID != 0 && id == 0:
			n.Effective |= n.Permitted & fsCaps
		}
	}
	t.SetCred(n)
	return uintptr(old.FSUID), nil
}

// setGIDs commits changed group ids.
func setGIDs(t *kernel.Task, n *cred.Creds) (uintptr, error) {
	n.FSGID = n.EGID
	t.SetCred(n)
	return 0, nil
}

// sysSetgid implements setgid(2).
func sysSetgid(t *kernel.Task, a Args) (uintptr, error) {
	gid := a.Uint(0)
	old := t.Cred()
	if gid == keepID {
		return 0, unix.EINVAL
	}
	n := old.Copy()
	switch {
	case old.Has(unix.CAP_SETGID):
		n.GID, n.SGID = gid, gid
	case gid != old.GID && gid != old.SGID:
		return 0, unix.EPERM
	}
	n.EGID = gid
	return setGIDs(t, n)
}

// sysSetregid implements setregid(2).
func sysSetregid(t *kernel.Task, a Args) (uintptr, error) {
	rgid, egid := a.Uint(0), a.Uint(1)
	old := t.Cred()
	n := old.Copy()
	priv := old.Has(unix.CAP_SETGID)
	if rgid != keepID {
		if n.GID = rgid; rgid != old.GID && rgid != old.EGID && !priv {
			return 0, unix.EPERM
		}
	}
	if egid != keepID {
		if n.EGID = egid; egid != old.GID && egid != old.EGID && egid != old.SGID && !priv {
			return 0, unix.EPERM
		}
	}
	if rgid != keepID || egid != keepID && egid != old.GID {
		n.SGID = n.EGID
	}
	return setGIDs(t, n)
}

// sysSetresgid implements setresgid(2).
func sysSetresgid(t *kernel.Task, a Args) (uintptr, error) {
	old := t.Cred()
	n := old.Copy()
	for i, id := range []*uint32{&n.GID, &n.EGID, &n.SGID} {
		v := a.Uint(i)
		if v == keepID {
			continue
		}
		if v != old.GID && v != old.EGID && v != old.SGID && !old.Has(unix.CAP_SETGID) {
			return 0, unix.EPERM
		}
		*id = v
	}
	return setGIDs(t, n)
}

// sysGetresgid implements getresgid(2).
func sysGetresgid(t *kernel.Task, a Args) (uintptr, error) {
	c := t.Cred()
	return copyOutIDs(t, a, c.GID, c.EGID, c.SGID)
}

// sysSetfsgid implements setfsgid(2), which returns the old id always.
func sysSetfsgid(t *kernel.Task, a Args) (uintptr, error) {
	old := t.Cred()
	id := a.Uint(0)
	if id == keepID || id != old.GID && id != old.EGID && id != old.SGID && id != old.FSGID && !old.Has(unix.CAP_SETGID) {
		return uintptr(old.FSGID), nil
	}
	n := old.Copy()
	n.FSGID = id
	t.SetCred(n)
	return uintptr(old.FSGID), nil
}

// sysGetgroups implements getgroups(2).
func sysGetgroups(t *kernel.Task, a Args) (uintptr, error) {
	size, groups := a.Int(0), t.Cred().Groups
	if size < 0 {
		return 0, unix.EINVAL
	}
	if size == 0 {
		return uintptr(len(groups)), nil
	}
	if len(groups) > int(size) {
		return 0, unix.EINVAL
	}
	return uintptr(len(groups)), t.CopyOut(a.Addr(1), abi.SliceBytes(groups))
}

// sysSetgroups implements setgroups(2).
func sysSetgroups(t *kernel.Task, a Args) (uintptr, error) {
	if !t.Cred().Has(unix.CAP_SETGID) {
		return 0, unix.EPERM
	}
	size := a.Uint(0)
	if size > maxGroups {
		return 0, unix.EINVAL
	}
	groups := make([]uint32, size)
	if err := t.CopyIn(a.Addr(1), abi.SliceBytes(groups)); err != nil {
		return 0, err
	}
	if slices.Contains(groups, keepID) {
		return 0, unix.EINVAL
	}
	slices.Sort(groups) // groups_sort
	n := t.Cred().Copy()
	n.Groups = groups
	t.SetCred(n)
	return 0, nil
}

// copyInCapHeader reads the header of capget and capset and returns how many
// words each set has. An unknown version is answered with the preferred one:
// EINVAL.
func copyInCapHeader(t *kernel.Task, addr uint64) (h unix.CapUserHeader, words int, err error) {
	if err := t.CopyIn(addr, abi.Bytes(&h)); err != nil {
		return h, 0, err
	}
	switch h.Version {
	case unix.LINUX_CAPABILITY_VERSION_1:
		return h, 1, nil
	case unix.LINUX_CAPABILITY_VERSION_2, unix.LINUX_CAPABILITY_VERSION_3:
		return h, 2, nil
	}
	v := uint32(unix.LINUX_CAPABILITY_VERSION_3)
	if err := t.CopyOut(addr, abi.Bytes(&v)); err != nil {
		return h, 0, err
	}
	return h, 0, unix.EINVAL
}

// sysCapget implements capget(2).
func sysCapget(t *kernel.Task, a Args) (uintptr, error) {
	h, words, err := copyInCapHeader(t, a.Addr(0))
	if err == unix.EINVAL && a.Addr(1) == 0 {
		return 0, nil // a probe for the version
	}
	if err != nil {
		return 0, err
	}
	if h.Pid < 0 {
		return 0, unix.EINVAL
	}
	o, err := t.TaskByID(h.Pid)
	if err != nil {
		return 0, err
	}
	if a.Addr(1) == 0 {
		return 0, nil
	}
	c := o.Cred()
	var data [2]unix.CapUserData
	for i := range data {
		shift := 32 * uint(i)
		data[i] = unix.CapUserData{Effective: uint32(c.Effective >> shift), Permitted: uint32(c.Permitted >> shift), Inheritable: uint32(c.Inheritable >> shift)}
	}
	return done(t.CopyOut(a.Addr(1), abi.SliceBytes(data[:words])))
}

// sysCapset implements capset(2).
func sysCapset(t *kernel.Task, a Args) (uintptr, error) {
	h, words, err := copyInCapHeader(t, a.Addr(0))
	if err != nil {
		return 0, err
	}
	if h.Pid != 0 && h.Pid != t.TID() {
		return 0, unix.EPERM
	}
	var data [2]unix.CapUserData
	if err := t.CopyIn(a.Addr(1), abi.SliceBytes(data[:words])); err != nil {
		return 0, err
	}
	join := func(lo, hi uint32) cred.Caps { return (cred.Caps(lo) | cred.Caps(hi)<<32) & cred.AllCaps }
	eff := join(data[0].Effective, data[1].Effective)
	perm := join(data[0].Permitted, data[1].Permitted)
	inh := join(data[0].Inheritable, data[1].Inheritable)
	old := t.Cred()
	// cap_capset, in its order.
	if !old.Has(unix.CAP_SETPCAP) && inh&^(old.Inheritable|old.Permitted) != 0 ||
		inh&^(old.Inheritable|old.Bounding) != 0 || perm&^old.Permitted != 0 || eff&^perm != 0 {
		return 0, unix.EPERM
	}
	n := old.Copy()
	n.Effective, n.Permitted, n.Inheritable = eff, perm, inh
	n.Ambient &= perm & inh
	t.SetCred(n)
	return 0, nil
}
