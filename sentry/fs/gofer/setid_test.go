package gofer

import (
	"encoding/binary"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"runsc/sentry/cred"
	"runsc/sentry/mem"
	"runsc/sentry/posixacl"
	"runsc/sentry/vfs"
)

// user is a caller with other credentials.
type user struct {
	vfs.Caller
	cr *cred.Creds
}

func (u user) Cred() *cred.Creds { return u.cr }

// userCaller is one without capabilities.
func userCaller(uid, gid uint32, groups ...uint32) user {
	cr := cred.Root().Copy()
	cr.FSUID, cr.FSGID, cr.Groups, cr.Effective = uid, gid, groups, 0
	return user{vfs.KernelCaller(), cr}
}

// TestWriteSetID has root and others write and truncate files with set-id
// bits: they stay for CAP_FSETID and go without.
func TestWriteSetID(t *testing.T) {
	root, other := vfs.KernelCaller(), userCaller(1000, 77)
	tests := []struct {
		c          vfs.Caller
		mode, want uint32
	}{
		{root, 0o6755, 0o6755}, {root, 0o4644, 0o4644}, {root, 0o2755, 0o2755}, {root, 0o644, 0o644},
		{other, 0o6755, 0o755}, {other, 0o4644, 0o644}, {other, 0o2755, 0o755},
	}
	both(t, func(x *tree) {
		for _, tt := range tests {
			i := x.create(x.root, "f", "")
			ops := x.open(i, unix.O_RDWR)
			for name, change := range map[string]func() error{
				"write": func() error {
					b := mem.KernelBuf([]byte("x"))
					_, _, err := ops.(vfs.WriterAt).WriteAt(tt.c, nil, &b, 0)
					return err
				},
				"append": func() error {
					b := mem.KernelBuf([]byte("x"))
					_, _, err := ops.(vfs.WriterAt).WriteAt(tt.c, nil, &b, -1)
					return err
				},
				"truncate": func() error {
					n := uint64(3)
					return i.SetStat(tt.c, &vfs.SetStat{Size: &n})
				},
			} {
				mode := tt.mode
				if err := i.SetStat(nil, &vfs.SetStat{Mode: &mode}); err != nil {
					x.Fatal(err)
				}
				for range 2 {
					if err := change(); err != nil {
						x.Errorf("%s: %v", name, err)
					}
				}
				if got := x.stat(i).Mode & 0o7777; got != tt.want {
					x.Errorf("%s of a file with mode %o leaves %o, want %o", name, tt.mode, got, tt.want)
				}
			}
			// Bits that somebody outside took away do not come back.
			if !x.fs.exclusive && tt.mode&setIDBits != 0 {
				if err := os.Chmod(x.host("f"), 0o755|os.ModeSetuid); err != nil {
					x.Fatal(err)
				}
				x.stat(i)
				if err := os.Chmod(x.host("f"), 0o755); err != nil {
					x.Fatal(err)
				}
				b := mem.KernelBuf([]byte("x"))
				if _, _, err := ops.(vfs.WriterAt).WriteAt(tt.c, nil, &b, 0); err != nil {
					x.Error(err)
				}
				if got := x.stat(i).Mode & 0o7777; got != 0o755 {
					x.Errorf("mode %o came back", got)
				}
			}
			ops.Release()
			if err := x.root.Unlink(nil, "f", i); err != nil {
				x.Fatal(err)
			}
			i.DecRef()
		}
	})
}

// aclValue encodes (tag, permissions, id) entries.
func aclValue(entries ...[3]uint32) []byte {
	b := []byte{2, 0, 0, 0}
	for _, e := range entries {
		b = binary.LittleEndian.AppendUint16(b, uint16(e[0]))
		b = binary.LittleEndian.AppendUint16(b, uint16(e[1]))
		b = binary.LittleEndian.AppendUint32(b, e[2])
	}
	return b
}

// TestHostACL checks permissions on files of the host with access lists.
func TestHostACL(t *testing.T) {
	const none = ^uint32(0)
	both(t, func(x *tree) {
		set := func(name string, list []byte) {
			x.Helper()
			if err := unix.Setxattr(x.host(name), posixacl.Access, list, 0); err != nil {
				x.Skipf("no lists here: %v", err)
			}
		}
		for _, name := range []string{"f", "plain"} {
			if err := os.WriteFile(x.host(name), nil, 0o600); err != nil {
				x.Fatal(err)
			}
			if err := os.Chown(x.host(name), 1, 2); err != nil {
				x.Fatal(err)
			}
		}
		if err := os.Chmod(x.host("plain"), 0o640); err != nil {
			x.Fatal(err)
		}
		if err := os.MkdirAll(x.host("d/e"), 0o755); err != nil {
			x.Fatal(err)
		}
		// The mode of f is 0664: the group has nothing, user 10 may read, group
		// 20 may write, and all others read.
		set("f", aclValue([3]uint32{1, 6, none}, [3]uint32{2, 4, 10}, [3]uint32{4, 0, none}, [3]uint32{8, 2, 20}, [3]uint32{16, 6, none}, [3]uint32{32, 4, none}))
		set("d", aclValue([3]uint32{1, 7, none}, [3]uint32{2, 0, 10}, [3]uint32{4, 5, none}, [3]uint32{16, 5, none}, [3]uint32{32, 5, none}))
		ctx := x.mountTree()
		access := func(c vfs.Caller, name string, mask uint32) error {
			return vfs.AccessAt(c, vfs.At{FS: ctx, Name: name}, mask, true)
		}
		for range 2 { // also from what was kept
			for _, tt := range []struct {
				c    vfs.Caller
				name string
				mask uint32
				want error
			}{
				{userCaller(50, 2), "/f", vfs.MayRead, unix.EACCES},
				{userCaller(50, 2), "/f", vfs.MayWrite, unix.EACCES},
				{userCaller(10, 99), "/f", vfs.MayRead, nil},
				{userCaller(10, 99), "/f", vfs.MayWrite, unix.EACCES},
				{userCaller(50, 20), "/f", vfs.MayWrite, nil},
				{userCaller(50, 20), "/f", vfs.MayRead, unix.EACCES},
				{userCaller(50, 60), "/f", vfs.MayRead, nil},
				{userCaller(1, 60), "/f", vfs.MayWrite, nil},
				{vfs.KernelCaller(), "/f", vfs.MayWrite, nil},
				{userCaller(10, 99), "/d/e", vfs.MayRead, unix.EACCES},
				{userCaller(50, 99), "/d/e", vfs.MayRead, nil},
				{userCaller(50, 2), "/plain", vfs.MayRead, nil},
				{userCaller(50, 3), "/plain", vfs.MayRead, unix.EACCES},
			} {
				if err := access(tt.c, tt.name, tt.mask); err != tt.want {
					cr := tt.c.Cred()
					x.Errorf("%d:%d with mask %d at %s: %v, want %v", cr.FSUID, cr.FSGID, tt.mask, tt.name, err, tt.want)
				}
			}
		}
		// A list changed by the guest counts at once, by the host on a shared mount.
		open := aclValue([3]uint32{1, 6, none}, [3]uint32{2, 6, 10}, [3]uint32{4, 6, none}, [3]uint32{16, 6, none}, [3]uint32{32, 4, none})
		if err := vfs.SetxattrAt(vfs.KernelCaller(), vfs.At{FS: ctx, Name: "/f"}, posixacl.Access, open, 0); err != nil {
			x.Error(err)
		}
		if err := access(userCaller(50, 2), "/f", vfs.MayWrite); err != nil {
			x.Errorf("after a change: %v", err)
		}
		if !x.fs.exclusive {
			set("f", aclValue([3]uint32{1, 6, none}, [3]uint32{2, 6, 10}, [3]uint32{4, 4, none}, [3]uint32{16, 6, none}, [3]uint32{32, 4, none}))
			if err := access(userCaller(50, 2), "/f", vfs.MayWrite); err != unix.EACCES {
				x.Errorf("after a change outside: %v", err)
			}
		}
	})
}
