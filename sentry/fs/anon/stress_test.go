package anon

import (
	"math/rand"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/vfs"
)

// TestEpollStress adds, changes, removes, fires and closes members of nested
// instances at once: the race detector and a deadlock are what it looks for.
func TestEpollStress(t *testing.T) {
	const workers, rounds = 4, 3000
	outer, inner := NewEpoll(), NewEpoll()
	innerFile := fileOf(inner)
	if err := outer.Add(innerFile, 100, unix.EPOLLIN, 0); err != nil {
		t.Fatal(err)
	}
	before := members.Load()
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			rng := rand.New(rand.NewSource(int64(w)))
			for range rounds {
				f := fileOf(NewEventfd(0, false))
				ep := []*Epoll{outer, inner}[rng.Intn(2)]
				events := []uint32{unix.EPOLLIN, unix.EPOLLIN | unix.EPOLLET, unix.EPOLLIN | unix.EPOLLONESHOT}[rng.Intn(3)]
				_ = ep.Add(f, int32(w), events, 1)
				_ = write64(f, 1)
				_, _ = ep.Wait(vfs.KernelCaller(), 4, -1, func([]Event) error { return nil })
				switch rng.Intn(3) {
				case 0:
					_ = ep.Delete(f, int32(w))
				case 1:
					_ = ep.Modify(f, int32(w), unix.EPOLLIN|unix.EPOLLOUT, 2)
				}
				outer.Ready(waitq.In)
				f.DecRef()
			}
		})
	}
	done := make(chan bool)
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("deadlock")
	}
	if n := members.Load(); n != before {
		t.Errorf("%d members left", n-before)
	}
}
