package posixacl

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"

	"runsc/sentry/cred"
)

func list(entries ...entry) []byte { return (&ACL{entries}).Encode() }

func TestParse(t *testing.T) {
	good := list(entry{userObj, 7, undefinedID}, entry{user, 6, 10}, entry{groupObj, 5, undefinedID}, entry{maskTag, 4, undefinedID}, entry{other, 0, undefinedID})
	a, err := Parse(good)
	if err != nil || !bytes.Equal(a.Encode(), good) {
		t.Fatalf("%v, %v", a, err)
	}
	if bits, all := a.Mode(); bits != 0o740 || all {
		t.Errorf("mode %o, %v", bits, all)
	}
	if a, err := Parse([]byte{2, 0, 0, 0}); a != nil || err != nil {
		t.Errorf("an empty list is %v, %v", a, err)
	}
	for _, b := range [][]byte{
		{2, 0, 0}, good[:len(good)-1], good[:len(good)-8],
		list(entry{userObj, 7, 0}, entry{user, 6, 10}, entry{groupObj, 5, 0}, entry{other, 0, 0}),                       // no mask
		list(entry{userObj, 7, 0}, entry{groupObj, 5, 0}, entry{other, 0, 0}, entry{other, 0, 0}),                       // twice
		list(entry{userObj, 9, 0}, entry{groupObj, 5, 0}, entry{other, 0, 0}),                                           // bits
		list(entry{groupObj, 5, 0}, entry{userObj, 7, 0}, entry{other, 0, 0}),                                           // order
		list(entry{userObj, 7, 0}, entry{user, 6, ^uint32(0)}, entry{groupObj, 5, 0}, entry{16, 7, 0}, entry{32, 0, 0}), // nobody
		list(entry{userObj, 7, 0}, entry{groupObj, 5, 0}, entry{64, 0, 0}, entry{other, 0, 0}),
	} {
		if a, err := Parse(b); err != unix.EINVAL {
			t.Errorf("%x is %v, %v", b, a, err)
		}
	}
	if _, err := Parse([]byte{1, 0, 0, 0}); err != unix.EOPNOTSUPP {
		t.Errorf("version 1: %v", err)
	}
}

func TestCheck(t *testing.T) {
	a := &ACL{[]entry{{userObj, 7, 0}, {user, 6, 10}, {groupObj, 4, 0}, {group, 2, 20}, {maskTag, 6, 0}, {other, 1, 0}}}
	tests := []struct {
		uid, gid, mask uint32
		want           bool
	}{
		{1, 99, 7, true}, {10, 99, 6, true}, {10, 99, 1, false}, {10, 2, 4, true},
		{50, 2, 4, true}, {50, 2, 2, false}, {50, 20, 2, true}, {50, 20, 4, false}, {50, 20, 1, false}, {50, 60, 1, true}, {50, 60, 4, false},
	}
	for _, tt := range tests {
		cr := cred.Root().Copy()
		cr.FSUID, cr.FSGID, cr.Groups = tt.uid, tt.gid, nil
		if got := a.Check(cr, 1, 2, tt.mask); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
	if bits, _ := a.Chmod(0o751).Mode(); bits != 0o751 {
		t.Errorf("after chmod %o", bits)
	}
	n, mode := a.Create(0o100666)
	if n == nil || mode != 0o100660 {
		t.Errorf("a new file has %v, %o", n, mode)
	}
	plain := &ACL{[]entry{{userObj, 7, 0}, {groupObj, 5, 0}, {other, 5, 0}}}
	if n, mode := plain.Create(0o100644); n != nil || mode != 0o100644 {
		t.Errorf("a new file has %v, %o", n, mode)
	}
}
