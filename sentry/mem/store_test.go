package mem

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"runsc/sentry/image"
)

// withDisk gives a an empty host file for its frames.
func withDisk(t *testing.T, f *File, a *Account) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "disk")
	fd, err := unix.Open(name, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	must(t, err)
	must(t, f.AddDisk(fd, a))
	return name
}

func diskBlocks(t *testing.T, name string) int64 {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Stat(name, &st))
	return st.Blocks
}

func TestDiskFrames(t *testing.T) {
	f := newFile(t)
	a := NewAccount(nil, 0)
	if a.FileKind() != Tmpfs {
		t.Error("a disk where there is none")
	}
	name := withDisk(t, f, a)
	other := NewAccount(nil, 0)
	withDisk(t, f, other)
	for _, n := range []uint64{PageSize, 64 << 10, 5 << 20} {
		r, err := f.Allocate(n, a, a.FileKind())
		must(t, err)
		got := make([]byte, n)
		must(t, f.ReadAt(got, r.Start))
		if !bytes.Equal(got, make([]byte, n)) {
			t.Error("new frames are not zero")
		}
		want := bytes.Repeat([]byte("frames "), int(n)/7+1)[:n]
		must(t, f.WriteAt(want, r.Start))
		must(t, f.ReadAt(got, r.Start))
		if !bytes.Equal(got, want) {
			t.Error("the contents differ")
		}
		if _, err := f.CompareAndSwapUint32(r.Start, 1, 2); err != nil {
			t.Error(err)
		}
		fd, off := f.HostPlace(r.Start)
		if fd == f.FD() {
			t.Error("the frames are in the memfd")
		}
		if n, err := unix.Pread(fd, got[:6], off); n != 6 || err != nil || string(got[:6]) != "frames" {
			t.Errorf("the host's file has %q, %v", got[:6], err)
		}
		if b := diskBlocks(t, name); b < int64(n/512) {
			t.Errorf("%d blocks for %d bytes", b, n)
		}
		f.DecRef(r)
		f.Reclaim()
		if b := diskBlocks(t, name); b > 64 {
			t.Errorf("%d blocks are left", b)
		}
	}
	if a.Total() != 0 || f.root.Total() != 0 {
		t.Errorf("%d bytes are charged", a.Total())
	}
	f.RemoveDisk(a)
	if a.FileKind() != Tmpfs || len(f.stores()) != 2 {
		t.Error("the disk is still there")
	}
	f.RemoveDisk(a)
	// The place is used again, and a file with frames can go too.
	withDisk(t, f, a)
	r, err := f.Allocate(PageSize, a, Disk)
	must(t, err)
	f.RemoveDisk(a)
	if err := f.ReadAt(make([]byte, 1), r.Start); err == nil {
		t.Error("a frame of a file that is gone was read")
	}
	f.DecRef(r)
	f.Reclaim()
}

// TestDiskImage saves frames of a disk and restores them on another, and in memory.
func TestDiskImage(t *testing.T) {
	f := newFile(t)
	a := NewAccount(nil, 0)
	withDisk(t, f, a)
	r, err := f.Allocate(3<<20, a, Disk)
	must(t, err)
	want := make([]byte, r.Len())
	copy(want[1<<20:], bytes.Repeat([]byte("x"), 1<<20))
	must(t, f.WriteAt(want[1<<20:2<<20], r.Start+1<<20))
	set := &FrameSet{}
	set.Add(r)
	x := newImage(t)
	s, err := f.BeginSnapshot(set, x.w)
	must(t, err)
	must(t, f.WriteAt([]byte("later"), r.Start+1<<20))
	must(t, s.Write())
	s.Close()
	x.open().Close()
	ranges := []image.FrameRange{{First: r.Start / PageSize, Pages: r.Len() / PageSize, Kind: uint8(Disk)}}
	for _, disk := range []bool{true, false} {
		g := newFile(t)
		c := NewAccount(nil, 0)
		if disk {
			c.Upper = NewAccount(nil, 0)
			withDisk(t, g, c.Upper)
		}
		fm, err := g.restoreFrames(ranges, x.reopen(), c)
		must(t, err)
		got, err := fm.Take(r)
		must(t, err)
		fm.Finish()
		if !bytes.Equal(readRanges(t, g, got), want) {
			t.Errorf("disk %v: the contents differ", disk)
		}
		if disk != (c.Total() == 0) || disk && c.Upper.Total() != r.Len() {
			t.Errorf("disk %v: %d bytes are charged", disk, c.Total())
		}
		for _, r := range got {
			g.DecRef(r)
		}
		fm.Abandon()
	}
	f.DecRef(r)
}

// TestDiskFull fills a small file system: the error comes before anything is
// written.
func TestDiskFull(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting a small tmpfs needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("t", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("mounting a small tmpfs needs rights of root:", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	fd, err := unix.Open(filepath.Join(dir, "disk"), unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	must(t, err)
	f := newFile(t)
	a := NewAccount(nil, 0)
	must(t, f.AddDisk(fd, a))
	r, err := f.Allocate(768<<10, a, Disk)
	must(t, err)
	if _, err := f.Allocate(512<<10, a, Disk); err != unix.ENOSPC {
		t.Errorf("beyond the disk's end: %v", err)
	}
	if a.Total() != r.Len() {
		t.Errorf("%d bytes are charged", a.Total())
	}
	f.DecRef(r)
	f.Reclaim()
	r, err = f.Allocate(512<<10, a, Disk)
	must(t, err)
	f.DecRef(r)
	f.RemoveDisk(a)
}
