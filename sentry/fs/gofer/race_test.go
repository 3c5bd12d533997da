package gofer

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// mountTree returns x's tree as the root of a namespace.
func (x *tree) mountTree() *vfs.FSContext {
	x.Helper()
	fd, err := x.rootFD()
	if err != nil {
		x.Fatal(err)
	}
	co := Shared
	if x.fs.exclusive {
		co = Exclusive
	}
	fs, err := x.cl.New(Options{RootFD: fd, Coherence: co})
	if err != nil {
		x.Fatal(err)
	}
	ns := vfs.NewNamespace(fs, 0)
	root := ns.Root()
	ctx := vfs.NewFSContext(root, root, 0)
	root.DecRef()
	x.Cleanup(func() {
		ctx.DecRef()
		ns.DecRef()
		fs.mu.Lock()
		for _, o := range fs.inodes {
			i := o.base()
			x.Errorf("left behind: inode %q, type %o, %d references, pinned %v, parent %v", i.name, i.typ, i.refs.Load(), i.pinned != nil, i.parent != nil)
		}
		fs.mu.Unlock()
	})
	return ctx
}

// TestSwappedForLink has the host swap a directory for a symbolic link that
// leads outside, again and again: no file outside may ever be opened.
func TestSwappedForLink(t *testing.T) {
	x := newTree(t, Shared, 0)
	outside := t.TempDir()
	if err := os.WriteFile(outside+"/f", []byte("OUTSIDE"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(x.host("d"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(x.host("d/f"), []byte("inside"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, x.host("l")); err != nil {
		t.Fatal(err)
	}
	ctx := x.mountTree()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, x.host("d"), unix.AT_FDCWD, x.host("l"), unix.RENAME_EXCHANGE)
			}
		}
	})
	c := vfs.KernelCaller()
	opened := 0
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
		f, err := vfs.OpenAt(c, vfs.At{FS: ctx, Name: "/d/f"}, unix.O_RDONLY, 0)
		if err != nil {
			continue
		}
		opened++
		b := make([]byte, 10)
		buf := mem.KernelBuf(b)
		if n, _ := f.Read(c, &buf); string(b[:n]) != "inside" {
			t.Fatalf("read %q", b[:n])
		}
		f.DecRef()
	}
	close(stop)
	wg.Wait()
	if opened == 0 {
		t.Error("the file was never opened")
	}
}

// TestConcurrent does everything at once, with hardly any idle descriptors.
func TestConcurrent(t *testing.T) {
	both(t, func(x *tree) {
		ctx := x.mountTree()
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() { churn(x, ctx, uint64(w)) })
		}
		wg.Wait()
	})
}

// churn works on a few names that other goroutines use too. Errors that come
// from that are fine; a wrong content is not.
func churn(x *tree, ctx *vfs.FSContext, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	c := vfs.KernelCaller()
	at := func() vfs.At { return vfs.At{FS: ctx, Name: fmt.Sprintf("/d%d/f%d", r.IntN(2), r.IntN(3))} }
	for range 300 {
		switch r.IntN(8) {
		case 0:
			_ = vfs.MkdirAt(c, vfs.At{FS: ctx, Name: fmt.Sprintf("/d%d", r.IntN(2))}, 0o755)
		case 1:
			_ = vfs.RenameAt(c, at(), at(), 0)
		case 2:
			_ = vfs.UnlinkAt(c, at())
		case 3:
			_ = vfs.LinkAt(c, at(), at())
		case 4:
			a, b := vfs.At{FS: ctx, Name: "/d0"}, vfs.At{FS: ctx, Name: "/d1"}
			_ = vfs.RenameAt(c, a, b, unix.RENAME_EXCHANGE)
		case 5:
			_, _ = vfs.StatAt(c, at(), unix.STATX_BASIC_STATS)
		case 6:
			vfs.DropCaches()
		default:
			f, err := vfs.OpenAt(c, at(), unix.O_RDWR|unix.O_CREAT, 0o644)
			if err != nil {
				continue
			}
			text := []byte("content")
			buf := mem.KernelBuf(text)
			if _, err := f.WriteAt(c, &buf, 0); err != nil {
				x.Errorf("write: %v", err)
			}
			got := make([]byte, 20)
			buf = mem.KernelBuf(got)
			if n, err := f.ReadAt(c, &buf, 0); err != nil || string(got[:n]) != "content" {
				x.Errorf("read %q, %v", got[:n], err)
			}
			if st, err := f.Stat(c, unix.STATX_BASIC_STATS); err != nil || st.Size != 7 {
				x.Errorf("fstat: %d, %v", st.Size, err)
			}
			f.DecRef()
		}
	}
}
