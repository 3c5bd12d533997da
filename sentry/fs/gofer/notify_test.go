package gofer

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"runsc/pkg/hostfs"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// recorder keeps the events it gets.
type recorder struct {
	mu   sync.Mutex
	seen map[string]int
	more chan struct{}
}

func (r *recorder) Event(mask, cookie uint32, name string) {
	r.mu.Lock()
	r.seen[fmt.Sprintf("%#x %s", mask, name)]++
	r.mu.Unlock()
	select {
	case r.more <- struct{}{}:
	default:
	}
}

// await waits for an event.
func (r *recorder) await(t *testing.T, mask uint32, name string) {
	t.Helper()
	key := fmt.Sprintf("%#x %s", mask, name)
	for end := time.After(20 * time.Second); ; {
		r.mu.Lock()
		n := r.seen[key]
		r.mu.Unlock()
		if n > 0 {
			return
		}
		select {
		case <-r.more:
		case <-end:
			t.Fatalf("no event %s; seen: %v", key, r.seen)
		}
	}
}

// TestOutsideChanges has the host change a watched directory, and the guest
// too, whose changes are reported once.
func TestOutsideChanges(t *testing.T) {
	placed(t, func(t *testing.T, remote bool) {
		x := newTreeAt(t, t.TempDir(), Shared, 0, remote)
		ctx := x.mountTree()
		c := vfs.KernelCaller()
		root := ctx.Root()
		r := &recorder{seen: map[string]int{}, more: make(chan struct{}, 1)}
		w := vfs.AddWatch(root, unix.IN_ALL_EVENTS, r)
		root.DecRef()
		defer func() { w.Remove() }()

		if err := os.WriteFile(x.host("out"), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
		r.await(t, unix.IN_CREATE, "out")
		r.await(t, unix.IN_MODIFY, "out")
		r.await(t, unix.IN_CLOSE_WRITE, "out")
		if err := os.Rename(x.host("out"), x.host("out2")); err != nil {
			t.Fatal(err)
		}
		r.await(t, unix.IN_MOVED_FROM, "out")
		r.await(t, unix.IN_MOVED_TO, "out2")

		f, err := vfs.OpenAt(c, vfs.At{FS: ctx, Name: "/in"}, unix.O_RDWR|unix.O_CREAT, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		buf := mem.KernelBuf([]byte("text"))
		if _, err := f.Write(c, &buf); err != nil {
			t.Fatal(err)
		}
		f.DecRef()
		for _, step := range []error{
			vfs.ChmodAt(c, vfs.At{FS: ctx, Name: "/in"}, 0o644),
			vfs.RenameAt(c, vfs.At{FS: ctx, Name: "/in"}, vfs.At{FS: ctx, Name: "/in2"}, 0),
			vfs.MkdirAt(c, vfs.At{FS: ctx, Name: "/dir"}, 0o755),
			vfs.UnlinkAt(c, vfs.At{FS: ctx, Name: "/in2"}),
			vfs.RmdirAt(c, vfs.At{FS: ctx, Name: "/dir"}),
		} {
			if step != nil {
				t.Error(step)
			}
		}
		if err := os.Mkdir(x.host("last"), 0o755); err != nil {
			t.Fatal(err)
		}
		r.await(t, unix.IN_CREATE|unix.IN_ISDIR, "last")
		r.mu.Lock()
		defer r.mu.Unlock()
		for key, want := range map[string]int{
			"0x100 in": 1, "0x2 in": 1, "0x8 in": 1, "0x4 in": 1, "0x40 in": 1, "0x80 in2": 1, "0x200 in2": 1,
			"0x40000100 dir": 1, "0x40000200 dir": 1,
		} {
			if r.seen[key] != want {
				t.Errorf("event %s: %d times, want %d", key, r.seen[key], want)
			}
		}
	})
}

// TestWatchedFileGoes deletes a watched file outside.
func TestWatchedFileGoes(t *testing.T) {
	placed(t, func(t *testing.T, remote bool) {
		x := newTreeAt(t, t.TempDir(), Shared, 0, remote)
		if err := os.WriteFile(x.host("f"), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
		ctx := x.mountTree()
		p, err := vfs.LookupAt(vfs.KernelCaller(), vfs.At{FS: ctx, Name: "/f"})
		if err != nil {
			t.Fatal(err)
		}
		r := &recorder{seen: map[string]int{}, more: make(chan struct{}, 1)}
		w := vfs.AddWatch(p, unix.IN_ALL_EVENTS, r)
		p.DecRef()
		defer func() { w.Remove() }()
		if err := os.Remove(x.host("f")); err != nil {
			t.Fatal(err)
		}
		if remote {
			theGofer.files.Flush() // what the client let go of waits for the next call
		}
		r.await(t, unix.IN_DELETE_SELF, "")
	})
}

// counting counts the calls of a walk.
type counting struct {
	hostfs.Backend
	calls int
}

func (b *counting) Stat(t hostfs.Target, name string, stx *unix.Statx_t) error {
	b.calls++
	return b.Backend.Stat(t, name, stx)
}

func (b *counting) Walk(dir int, names []string, stat bool) ([]hostfs.Step, error) {
	b.calls++
	return b.Backend.Walk(dir, names, stat)
}

func (b *counting) StatWalk(dir int, names []string) ([]unix.Statx_t, error) {
	b.calls++
	return b.Backend.StatWalk(dir, names)
}

// TestOneExchange counts the exchanges of walks in remote mode.
func TestOneExchange(t *testing.T) {
	placed(t, func(t *testing.T, remote bool) {
		if !remote {
			t.Skip("a call is no exchange")
		}
		for _, co := range []Coherence{Exclusive, Shared} {
			x := newTreeAt(t, t.TempDir(), co, 0, true)
			if err := os.MkdirAll(x.host("a/b/c/d/e"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(x.host("a/b/c/d/e/f"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			ctx := x.mountTree()
			b := &counting{Backend: x.cl.backend}
			x.cl.backend = b
			stat := func() int {
				b.calls = 0
				if _, err := vfs.StatAt(vfs.KernelCaller(), vfs.At{FS: ctx, Name: "/a/./b/c//d/e/f"}, unix.STATX_BASIC_STATS); err != nil {
					t.Fatal(err)
				}
				return b.calls
			}
			first, second := stat(), stat()
			t.Logf("a walk of six names: %d exchanges, then %d", first, second)
			// Attributes that are a little old are asked for again: two calls.
			if first > 3 || second > 3 || co == Exclusive && second != 0 {
				t.Errorf("a walk of six names took %d exchanges, then %d", first, second)
			}
			if n := len(x.fs.ahead); n != 0 {
				t.Errorf("%d walks left something behind", n)
			}
			if err := os.Remove(x.host("a/b/c/d/e/f")); err != nil {
				t.Fatal(err)
			}
			if co == Shared {
				if _, err := vfs.StatAt(vfs.KernelCaller(), vfs.At{FS: ctx, Name: "/a/b/c/d/e/f"}, unix.STATX_BASIC_STATS); err != unix.ENOENT {
					t.Errorf("stat of a file that the host has deleted: %v", err)
				}
			}
		}
	})
}
