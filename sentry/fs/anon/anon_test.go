package anon

import (
	"encoding/binary"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/clock"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// fileOf opens ops.
func fileOf(ops vfs.FileOps) *vfs.File {
	return vfs.NewAnonFile("test", ops, unix.O_RDWR|unix.O_NONBLOCK)
}

func readN(f *vfs.File, n int) ([]byte, error) {
	p := make([]byte, n)
	b := mem.KernelBuf(p)
	k, err := f.Read(vfs.KernelCaller(), &b)
	return p[:k], err
}

func read64(t *testing.T, f *vfs.File) (uint64, error) {
	t.Helper()
	p, err := readN(f, 8)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(p), nil
}

func write64(f *vfs.File, v uint64) error {
	var p [8]byte
	binary.LittleEndian.PutUint64(p[:], v)
	b := mem.KernelBuf(p[:])
	_, err := f.Write(vfs.KernelCaller(), &b)
	return err
}

func TestEventfd(t *testing.T) {
	const in, out = waitq.In, waitq.Out
	f := fileOf(NewEventfd(2, false))
	if m := f.Ready(in | out); m != in|out {
		t.Errorf("ready %x", m)
	}
	if err := write64(f, 3); err != nil {
		t.Fatal(err)
	}
	if v, err := read64(t, f); v != 5 || err != nil {
		t.Errorf("read %d, %v", v, err)
	}
	if _, err := read64(t, f); err != unix.EAGAIN {
		t.Errorf("empty: %v", err)
	}
	if err := write64(f, 1<<64-1); err != unix.EINVAL {
		t.Errorf("write of the largest: %v", err)
	}
	if err := write64(f, 1<<64-2); err != nil {
		t.Fatal(err)
	}
	if m := f.Ready(in | out); m != in {
		t.Errorf("full: ready %x", m)
	}
	if err := write64(f, 1); err != unix.EAGAIN {
		t.Errorf("full: %v", err)
	}
	if _, err := readN(f, 7); err != unix.EINVAL {
		t.Errorf("short read: %v", err)
	}
	sem := fileOf(NewEventfd(2, true))
	for range 2 {
		if v, err := read64(t, sem); v != 1 || err != nil {
			t.Errorf("semaphore: %d, %v", v, err)
		}
	}
	if _, err := read64(t, sem); err != unix.EAGAIN {
		t.Errorf("semaphore empty: %v", err)
	}
}

func TestTimerfd(t *testing.T) {
	clk := clock.New()
	tm := NewTimerfd(clk, unix.CLOCK_MONOTONIC)
	f := fileOf(tm)
	if v, i := tm.Get(); v != 0 || i != 0 {
		t.Errorf("new: %d, %d", v, i)
	}
	if _, err := read64(t, f); err != unix.EAGAIN {
		t.Errorf("disarmed: %v", err)
	}
	w := waitq.NewWaiter()
	e := waitq.Entry{Waiter: w}
	f.Register(&e, waitq.In)
	defer f.Unregister(&e)
	tm.Set(int64(time.Millisecond), 0, false)
	<-w.C
	if v, err := read64(t, f); v != 1 || err != nil {
		t.Errorf("one shot: %d, %v", v, err)
	}
	if v, i := tm.Get(); v != 0 || i != 0 {
		t.Errorf("after one shot: %d, %d", v, i)
	}
	// In the past, and periodic: many expirations at once.
	tm.Set(clk.Monotonic()-int64(10*time.Millisecond), int64(time.Millisecond), true)
	<-w.C
	if v, err := read64(t, f); v < 10 || err != nil {
		t.Errorf("periodic: %d, %v", v, err)
	}
	if v, i := tm.Get(); v <= 0 || v > int64(time.Millisecond) || i != int64(time.Millisecond) {
		t.Errorf("periodic: %d, %d", v, i)
	}
	tm.Set(0, 0, false)
	if m := f.Ready(waitq.In); m != 0 {
		t.Errorf("disarmed: %x", m)
	}
}

// collect returns the data of what is ready now.
func collect(t *testing.T, ep *Epoll, max int) map[uint64]uint32 {
	t.Helper()
	got := make(map[uint64]uint32)
	n, err := ep.Wait(vfs.KernelCaller(), max, -1, func(events []Event) error {
		for _, e := range events {
			got[e.Data] = e.Events
		}
		return nil
	})
	if err != nil || n != len(got) {
		t.Fatalf("wait: %d, %v, %v", n, err, got)
	}
	return got
}

func TestEpollModes(t *testing.T) {
	tests := []struct {
		name   string
		mode   uint32
		second int // events of a second look without a change
		third  int // after another write
	}{
		{"level", 0, 1, 1},
		{"edge", unix.EPOLLET, 0, 1},
		{"one-shot", unix.EPOLLONESHOT, 0, 0},
		{"exclusive", unix.EPOLLEXCLUSIVE, 1, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ep, f := NewEpoll(), fileOf(NewEventfd(0, false))
			if err := ep.Add(f, 3, unix.EPOLLIN|tt.mode, 77); err != nil {
				t.Fatal(err)
			}
			if got := collect(t, ep, 9); len(got) != 0 {
				t.Errorf("not ready: %v", got)
			}
			_ = write64(f, 1)
			if got := collect(t, ep, 9); got[77] != unix.EPOLLIN {
				t.Errorf("ready: %v", got)
			}
			if got := collect(t, ep, 9); len(got) != tt.second {
				t.Errorf("second look: %v", got)
			}
			_ = write64(f, 1)
			if got := collect(t, ep, 9); len(got) != tt.third {
				t.Errorf("third look: %v", got)
			}
		})
	}
}

func TestEpollRearm(t *testing.T) {
	ep, f := NewEpoll(), fileOf(NewEventfd(1, false))
	if err := ep.Add(f, 3, unix.EPOLLIN|unix.EPOLLONESHOT, 1); err != nil {
		t.Fatal(err)
	}
	collect(t, ep, 1)
	if err := ep.Modify(f, 3, unix.EPOLLIN|unix.EPOLLOUT|unix.EPOLLET, 2); err != nil {
		t.Fatal(err)
	}
	if got := collect(t, ep, 1); got[2] != unix.EPOLLIN|unix.EPOLLOUT {
		t.Errorf("after modify: %v", got)
	}
}

func TestEpollErrors(t *testing.T) {
	ep, f := NewEpoll(), fileOf(NewEventfd(0, false))
	epf := fileOf(ep)
	if err := ep.Add(f, 3, unix.EPOLLIN, 0); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		got  error
		want error
	}{
		{"twice", ep.Add(f, 3, unix.EPOLLIN, 0), unix.EEXIST},
		{"by another descriptor", ep.Add(f, 4, unix.EPOLLIN, 0), nil},
		{"itself", ep.Add(epf, 5, unix.EPOLLIN, 0), unix.EINVAL},
		{"modify a stranger", ep.Modify(f, 9, unix.EPOLLIN, 0), unix.ENOENT},
		{"delete a stranger", ep.Delete(f, 9), unix.ENOENT},
		{"exclusive one-shot", ep.Add(f, 6, unix.EPOLLEXCLUSIVE|unix.EPOLLONESHOT, 0), unix.EINVAL},
		{"modify to exclusive", ep.Modify(f, 3, unix.EPOLLEXCLUSIVE, 0), unix.EINVAL},
		{"delete", ep.Delete(f, 3), nil},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, tt.got, tt.want)
		}
	}
}

func TestEpollForgetsClosedFiles(t *testing.T) {
	ep, f := NewEpoll(), fileOf(NewEventfd(1, false))
	if err := ep.Add(f, 3, unix.EPOLLIN, 0); err != nil {
		t.Fatal(err)
	}
	f.DecRef()
	if got := collect(t, ep, 1); len(got) != 0 || len(ep.items) != 0 {
		t.Errorf("closed file: %v, %d members", got, len(ep.items))
	}
	g := fileOf(NewEventfd(1, false))
	epf := fileOf(ep)
	_ = ep.Add(g, 3, unix.EPOLLIN, 0)
	epf.DecRef()
	g.DecRef() // must not reach the instance that is gone
}

func TestEpollNesting(t *testing.T) {
	var eps []*Epoll
	var files []*vfs.File
	for range 7 {
		ep := NewEpoll()
		eps, files = append(eps, ep), append(files, fileOf(ep))
	}
	for i := range 4 {
		if err := eps[i].Add(files[i+1], 9, unix.EPOLLIN, uint64(i)); err != nil {
			t.Fatalf("level %d: %v", i, err)
		}
	}
	if err := eps[4].Add(files[5], 9, unix.EPOLLIN, 0); err != unix.ELOOP {
		t.Errorf("too deep: %v", err)
	}
	if err := eps[4].Add(files[0], 9, unix.EPOLLIN, 0); err != unix.ELOOP {
		t.Errorf("a loop: %v", err)
	}
	f := fileOf(NewEventfd(0, false))
	if err := eps[4].Add(f, 3, unix.EPOLLIN, 0); err != nil {
		t.Fatal(err)
	}
	w := waitq.NewWaiter()
	e := waitq.Entry{Waiter: w}
	files[0].Register(&e, waitq.In)
	defer files[0].Unregister(&e)
	_ = write64(f, 1)
	select {
	case <-w.C:
	default:
		t.Error("no wake-up through the levels")
	}
	if got := collect(t, eps[0], 1); got[0] != unix.EPOLLIN {
		t.Errorf("outermost: %v", got)
	}
	_, _ = read64(t, f)
	if got := collect(t, eps[0], 1); len(got) != 0 {
		t.Errorf("after the read: %v", got)
	}
}

func TestEpollFairness(t *testing.T) {
	ep := NewEpoll()
	for i := range 40 {
		if err := ep.Add(fileOf(NewEventfd(1, false)), int32(i), unix.EPOLLIN, uint64(i)); err != nil {
			t.Fatal(err)
		}
	}
	seen := make(map[uint64]bool)
	for range 4 {
		for data := range collect(t, ep, 10) {
			if seen[data] {
				t.Fatalf("member %d again before all had their turn", data)
			}
			seen[data] = true
		}
	}
	if got := collect(t, ep, 100); len(got) != 40 {
		t.Errorf("%d of 40 at once", len(got))
	}
}

func TestEpollWakes(t *testing.T) {
	ep, f := NewEpoll(), fileOf(NewEventfd(0, false))
	_ = ep.Add(f, 3, unix.EPOLLIN, 5)
	got := make(chan uint64)
	go func() {
		_, _ = ep.Wait(vfs.KernelCaller(), 1, 0, func(e []Event) error {
			got <- e[0].Data
			return nil
		})
	}()
	time.Sleep(5 * time.Millisecond)
	_ = write64(f, 1)
	if d := <-got; d != 5 {
		t.Errorf("data %d", d)
	}
}

func TestEpollFaultKeepsEvents(t *testing.T) {
	ep, f := NewEpoll(), fileOf(NewEventfd(1, false))
	_ = ep.Add(f, 3, unix.EPOLLIN|unix.EPOLLET, 5)
	_, err := ep.Wait(vfs.KernelCaller(), 1, -1, func([]Event) error { return unix.EFAULT })
	if err != unix.EFAULT {
		t.Errorf("fault: %v", err)
	}
	if got := collect(t, ep, 1); len(got) != 1 {
		t.Errorf("the event is gone: %v", got)
	}
}
