package pseudo

import (
	"bytes"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

var testTree = Tree[int]{
	{Path: "a/b/c", Type: unix.DT_REG, Make: text},
	{Path: "a/b/d", Type: unix.DT_REG, Make: text},
	{Path: "a/e", Type: unix.DT_REG, Make: text},
	{Path: "empty", Type: unix.DT_DIR},
	{Path: "f", Type: unix.DT_REG, Make: text},
}

func text(n int) Node { return Text{Perm: 0o444, Content: fmt.Sprint(n)} }

func TestTree(t *testing.T) {
	root := TreeDir[int]{Owner: 7, Tree: testTree}
	for path, want := range map[string]string{"": "a empty f", "a": "b e", "a/b": "c d", "empty": ""} {
		d := root
		d.Path = path
		for step := 1; step < 4; step++ { // stopping after each few entries changes nothing
			var got []byte
			pos := int64(0)
			for {
				n := 0
				_ = d.Each(nil, pos, func(name string, _ uint8, next int64) bool {
					if n == step {
						return false
					}
					n++
					got = append(append(got, name...), ' ')
					pos = next
					return true
				})
				if n == 0 {
					break
				}
			}
			if s := string(bytes.TrimSpace(got)); s != want {
				t.Errorf("%q by %d has %q, want %q", path, step, s, want)
			}
		}
	}
	n, err := root.Lookup(nil, "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.(Dir).Lookup(nil, "x"); err != unix.ENOENT {
		t.Error(err)
	}
	if f, err := n.(Dir).Lookup(nil, "e"); err != nil || f.(Text).Content != "7" {
		t.Errorf("%v, %v", f, err)
	}
	if i, _ := n.Info(nil); i.Nlink != 3 {
		t.Errorf("%d links", i.Nlink)
	}
}

// TestSeqRead checks when content is made anew.
func TestSeqRead(t *testing.T) {
	calls := 0
	var written string
	k := Knob{
		File: File{Perm: 0o644, Gen: func(_ vfs.Caller, b *bytes.Buffer) error {
			calls++
			fmt.Fprintf(b, "content %d", calls)
			return nil
		}},
		Set: func(_ vfs.Caller, data []byte) (int, error) {
			written = string(data)
			return len(data), nil
		},
	}
	fs := New(Options{Type: "test", Root: TableDir[int]{Table: Table[int]{{Name: "k", Type: unix.DT_REG, Make: func(int) Node { return k }}}}})
	root := fs.Root().(vfs.Dir)
	i, err := root.Lookup(nil, "k")
	if err != nil {
		t.Fatal(err)
	}
	ops, err := i.Open(nil, nil, unix.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	read := func(off int64, n int) string {
		b := make([]byte, n)
		buf := mem.KernelBuf(b)
		n, err := ops.(vfs.ReaderAt).ReadAt(nil, nil, &buf, off)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	for _, x := range []struct {
		off  int64
		n    int
		want string
	}{{0, 4, "cont"}, {4, 100, "ent 1"}, {9, 10, ""}, {100, 10, ""}, {0, 100, "content 2"}} {
		if got := read(x.off, x.n); got != x.want {
			t.Errorf("%d bytes at %d: %q, want %q", x.n, x.off, got, x.want)
		}
	}
	buf := mem.KernelBuf([]byte("set"))
	if _, end, err := ops.(vfs.WriterAt).WriteAt(nil, nil, &buf, 5); end != 8 || err != nil || written != "set" {
		t.Errorf("%d, %v, %q", end, err, written)
	}
	if got := read(8, 100); got != "3" {
		t.Errorf("after a write: %q", got)
	}
	ops.Release()
	i.DecRef()
	root.DecRef()
	if fs.Live() != 0 {
		t.Errorf("%d nodes left", fs.Live())
	}
}
