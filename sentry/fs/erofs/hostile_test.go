package erofs

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"runsc/sentry/vfs"
)

// TestRefused opens what is no image, or one that needs what is not there.
func TestRefused(t *testing.T) {
	change := func(f func(b []byte)) []byte {
		b := golden(t, "inline")
		f(b[superOffset:])
		return b
	}
	for _, tt := range []struct {
		name, says string
		data       []byte
	}{
		{"empty", "no EROFS image", nil},
		{"text", "no EROFS image", []byte(strings.Repeat("text ", 1000))},
		{"cut in the superblock", "no EROFS image", golden(t, "inline")[:superOffset+superSize-1]},
		{"cut behind it", "damaged", golden(t, "inline")[:superOffset+superSize]},
		{"compressed", "not supported", change(func(b []byte) { b[80] |= 2 })},
		{"devices", "not supported", change(func(b []byte) { b[80] |= 8 })},
		{"a device", "other devices", change(func(b []byte) { b[86] = 1 })},
		{"unknown feature", "0x40000000", change(func(b []byte) { b[83] |= 0x40 })},
		{"large blocks", "2^13", change(func(b []byte) { b[12] = 13 })},
		{"no blocks", "2^0", change(func(b []byte) { b[12] = 0 })},
		{"directory blocks", "another size", change(func(b []byte) { b[90] = 1 })},
		{"root elsewhere", "root", change(func(b []byte) { b[14], b[15] = 0xff, 0xff })},
		{"meta elsewhere", "root", change(func(b []byte) { le.PutUint32(b[40:], 0xffffffff) })},
	} {
		_, err := open(t, tt.data)
		if err == nil || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.says)
		}
	}
}

// TestReadOnly tries to change things.
func TestReadOnly(t *testing.T) {
	fs, err := open(t, golden(t, "inline"))
	if err != nil {
		t.Fatal(err)
	}
	root := fs.Root()
	defer root.DecRef()
	d := root.(*dir)
	i, err := d.Lookup(nil, "f100")
	if err != nil {
		t.Fatal(err)
	}
	defer i.DecRef()
	hard, err := d.Lookup(nil, "hard")
	if err != nil {
		t.Fatal(err)
	}
	if hard != i {
		t.Error("two names of a file are two inodes")
	}
	hard.DecRef()
	_, created := d.Create(nil, "x", vfs.CreateAttr{})
	_, made := d.Mkdir(nil, "x", vfs.CreateAttr{})
	_, opened := i.Open(nil, nil, unix.O_RDWR)
	for _, err := range []error{created, made, opened, d.Unlink(nil, "f100", i), d.Rmdir(nil, "sub", i), d.Link(nil, "x", i),
		d.Rename(nil, "f100", i, d, "x", nil, 0), i.SetStat(nil, &vfs.SetStat{}), i.(*regular).Setxattr(nil, "user.x", nil, 0)} {
		if err != unix.EROFS {
			t.Errorf("%v, want EROFS", err)
		}
	}
	for _, name := range []string{"", "a", "zzz", "f", "f1000", "hol", "many/x"} {
		if _, err := d.Lookup(nil, name); err != unix.ENOENT {
			t.Errorf("lookup of %q: %v", name, err)
		}
	}
	if _, err := i.(*regular).Getxattr(nil, "user.none"); err != unix.ENODATA {
		t.Error(err)
	}
}

// FuzzImage reads whatever an image leads to: there is no panic, no end of it too late, and no memory but what the
// bounds allow.
func FuzzImage(f *testing.F) {
	for _, im := range images {
		if im.name != "plain" { // the largest, and nothing new
			f.Add(uint32(0), []byte(nil), im.name == "inline")
		}
	}
	base := map[bool][]byte{true: golden(f, "inline"), false: golden(f, "chunks")}
	f.Add(uint32(superOffset+14), []byte{0x10}, true)
	f.Add(uint32(1152+16), []byte{0xff, 0xff, 0xff, 0x7f}, true)
	f.Add(uint32(1152+8), []byte{0xff, 0xff, 0xff, 0xff}, false)
	f.Fuzz(func(t *testing.T, at uint32, patch []byte, inline bool) {
		data := append([]byte(nil), base[inline]...)
		if len(patch) > 4096 {
			return
		}
		at %= uint32(len(data))
		copy(data[at:], patch)
		visit(t, data)
	})
}

// visit walks an image in both ways, in bounds.
func visit(t testing.TB, data []byte) {
	fs, err := open(t, data)
	if err != nil {
		return
	}
	small := func(read func(*file, int64) ([]byte, error)) func(*file, int64) ([]byte, error) {
		return func(f *file, size int64) ([]byte, error) {
			if size > 1<<20 { // what an inode claims
				f.ReadAt(nil, nil, kernelBuf(100), size-50)
				return nil, nil
			}
			return read(f, size)
		}
	}
	for _, read := range []func(*file, int64) ([]byte, error){readAll, readMapped} {
		w := walker{fs: fs, left: 300, all: map[string]string{}, read: small(read)}
		w.walk("", fs.Root()) // errors are what is wanted
	}
}

// TestDamaged changes single bytes all over an image.
func TestDamaged(t *testing.T) {
	data := golden(t, "inline")
	step := len(data)/80 + 1
	for i := superOffset; i < len(data); i += step {
		b := append([]byte(nil), data...)
		for k := i; k < min(i+8, len(b)); k++ {
			b[k] ^= 0xff
		}
		t.Run("", func(t *testing.T) { visit(t, b) })
	}
	for i := superOffset + superSize; i < 4096; i += 24 { // the inodes of the first block
		b := append([]byte(nil), data...)
		b[i] ^= 0x5a
		t.Run("", func(t *testing.T) { visit(t, b) })
	}
	for n := superOffset; n < len(data); n += step * 8 {
		t.Run("", func(t *testing.T) { visit(t, data[:n]) })
	}
}
