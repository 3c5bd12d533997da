package overlay_test

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"runsc/sentry/fs/overlay"
	"runsc/sentry/vfs"
)

// guest is a caller with a file system context.
type guest struct {
	vfs.Caller
	fs *vfs.FSContext
}

func (g guest) FS() *vfs.FSContext { return g.fs }

func TestGuestMount(t *testing.T) {
	top, low, _ := layers(t, func(l *tree) {
		for _, d := range []string{"/l1", "/l2", "/l1/d", "/l2/d", "/up", "/work", "/mnt"} {
			l.mkdir(d)
		}
		l.write("/l1/f", "one")
		l.write("/l2/f", "two")
		l.write("/l2/d/deep", "two")
		l.write("/l1/d/high", "one")
		l.must(vfs.MknodAt(l.c, l.at("/l1/hidden"), unix.S_IFCHR, 0))
		l.write("/l2/hidden", "x")
	})
	g := guest{low.c, low.fs}
	fst := overlay.FSType()
	bad := []string{"", "lowerdir=/l1", "lowerdir=/l1,upperdir=/up", "lowerdir=/none,upperdir=/up,workdir=/work", "lowerdir=/l1:/l2,bogus"}
	for _, o := range bad {
		if _, err := fst.New(g, "overlay", o, 0); err == nil {
			t.Errorf("options %q were accepted", o)
		}
	}
	if _, err := fst.New(guest{top.c, top.fs}, "overlay", "lowerdir=/l1,upperdir=/up,workdir=/work", 0); err != unix.EINVAL {
		t.Errorf("an overlay as upper layer: %v", err)
	}
	fs, err := fst.New(g, "overlay", "lowerdir=/l1:/l2,upperdir=/up,workdir=/work", 0)
	if err != nil {
		t.Fatal(err)
	}
	low.must(vfs.MountAt(low.c, low.at("/mnt"), fs, 0))
	if got := low.list("/mnt"); got != "d/ f" {
		t.Errorf("merged: %s", got)
	}
	if got := low.list("/mnt/d"); got != "deep high" {
		t.Errorf("merged below: %s", got)
	}
	if got := low.read("/mnt/f"); got != "one" {
		t.Errorf("f is %q", got)
	}
	low.write("/mnt/d/deep", "three")
	low.must(vfs.UnlinkAt(low.c, low.at("/mnt/f")))
	low.write("/mnt/hidden", "new")
	if got := low.list("/mnt"); got != "d/ hidden" {
		t.Errorf("after changes: %s", got)
	}
	if got := low.list("/up"); got != "d/ f hidden" {
		t.Errorf("upper: %s", got)
	}
	if st := low.stat("/up/f"); st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != 0 {
		t.Errorf("no whiteout: mode %o", st.Mode)
	}
	if err := vfs.UmountAt(low.c, low.at("/mnt"), 0); err != nil {
		t.Error(err)
	}
	if names, _ := vfs.ListxattrAt(low.c, low.at("/up/d/deep")); !slices.Contains(names, "trusted.overlay.origin") {
		t.Errorf("attributes of the upper file: %q", names)
	}
}
