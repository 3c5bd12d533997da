package fusefs

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

func mount(t *testing.T, hook Hook) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting wants root")
	}
	dir := t.TempDir()
	fs, err := Mount(dir, hook)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EPERM) {
		t.Skip("no /dev/fuse here: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := fs.Close(); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestFiles uses the file system as any.
func TestFiles(t *testing.T) {
	dir := mount(t, nil)
	data := bytes.Repeat([]byte("some bytes "), 50000)
	sub := filepath.Join(dir, "sub")
	if err := os.Mkdir(sub, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c"} {
		if err := os.WriteFile(filepath.Join(sub, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(filepath.Join(sub, "a"), filepath.Join(dir, "moved")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(sub, "b"), filepath.Join(sub, "c")); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "moved"))
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if err := os.Truncate(filepath.Join(dir, "moved"), 7); err != nil {
		t.Error(err)
	}
	if st, err := os.Stat(filepath.Join(dir, "moved")); err != nil || st.Size() != 7 || st.Mode() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	entries, err := os.ReadDir(sub)
	if err != nil || len(entries) != 1 || entries[0].Name() != "c" || !entries[0].Type().IsRegular() {
		t.Errorf("%v, %v", entries, err)
	}
	if err := os.Remove(sub); !errors.Is(err, unix.ENOTEMPTY) {
		t.Error(err)
	}
	if err := os.RemoveAll(sub); err != nil {
		t.Error(err)
	}
}

// TestHook has operations fail.
func TestHook(t *testing.T) {
	var writes atomic.Int32
	dir := mount(t, func(op Op, name string) error {
		switch {
		case op == Write && writes.Add(1) == 3:
			return unix.EIO
		case op == Fsync && name == "synced":
			return unix.EDQUOT
		case op == Rename, op == Create && name == "forbidden":
			return unix.EACCES
		}
		return nil
	})
	f, err := os.Create(filepath.Join(dir, "synced"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i := range 4 {
		if _, err := f.WriteAt([]byte("x"), int64(i)); (i == 2) != errors.Is(err, unix.EIO) {
			t.Errorf("write %d: %v", i, err)
		}
	}
	if err := f.Sync(); !errors.Is(err, unix.EDQUOT) {
		t.Error(err)
	}
	if err := os.Rename(f.Name(), f.Name()+"2"); !errors.Is(err, unix.EACCES) {
		t.Error(err)
	}
	if _, err := os.Create(filepath.Join(dir, "forbidden")); !errors.Is(err, unix.EACCES) {
		t.Error(err)
	}
}
