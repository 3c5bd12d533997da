package systrap

import (
	"errors"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// watcher sees stubs die, by their pidfds, and reaps them. Its goroutine is
// locked to the thread that cloned the first stub: all stubs are children of
// that thread and are killed (PR_SET_PDEATHSIG) when it ends.
type watcher struct {
	first int // what the first clone returned
	ep    int
	wake  int // eventfd that ends the loop
	done  chan struct{}

	mu sync.Mutex
	// mu guards:
	stubs map[int32]*stub
	empty *sync.Cond
	next  int32
}

// startWatcher starts the watcher's goroutine, which runs clone first.
func startWatcher(clone func() int) (*watcher, error) {
	w := &watcher{stubs: map[int32]*stub{}, done: make(chan struct{})}
	w.empty = sync.NewCond(&w.mu)
	var err error
	if w.ep, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, err
	}
	if w.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
		unix.Close(w.ep)
		return nil, err
	}
	if err = w.poll(w.wake, 0); err != nil {
		w.closeFDs()
		return nil, err
	}
	w.next = 1
	ready := make(chan struct{})
	go func() {
		// Never unlocked: the thread must not run anything else that could
		// end it, and is to end with this goroutine.
		runtime.LockOSThread()
		w.first = clone()
		close(ready)
		w.loop()
	}()
	<-ready
	return w, nil
}

func (w *watcher) poll(fd int, id int32) error {
	return unix.EpollCtl(w.ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: id})
}

// add begins to watch st.
func (w *watcher) add(st *stub) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := w.next
	for w.stubs[id] != nil || id == 0 {
		id++
	}
	w.next = id + 1
	if w.next < 0 {
		w.next = 1
	}
	if err := w.poll(st.pidfd, id); err != nil {
		return err
	}
	w.stubs[id] = st
	return nil
}

func (w *watcher) loop() {
	defer close(w.done)
	events := make([]unix.EpollEvent, 32)
	for {
		n, err := unix.EpollWait(w.ep, events, -1)
		if err != nil {
			if errors.Is(err, unix.EINTR) {
				continue
			}
			panic("systrap: epoll_wait: " + err.Error())
		}
		for _, e := range events[:n] {
			if e.Fd == 0 {
				return
			}
			w.reap(e.Fd)
		}
	}
}

// reap takes the exit status of a dead stub and tells those who wait for it.
func (w *watcher) reap(id int32) {
	w.mu.Lock()
	st := w.stubs[id]
	w.mu.Unlock()
	if st == nil {
		return
	}
	unix.EpollCtl(w.ep, unix.EPOLL_CTL_DEL, st.pidfd, nil)
	st.markDead()
	w.mu.Lock()
	delete(w.stubs, id)
	if len(w.stubs) == 0 {
		w.empty.Broadcast()
	}
	w.mu.Unlock()
}

// drain waits until every stub is reaped.
func (w *watcher) drain() {
	w.mu.Lock()
	for len(w.stubs) != 0 {
		w.empty.Wait()
	}
	w.mu.Unlock()
}

// stop ends the goroutine.
func (w *watcher) stop() {
	unix.Write(w.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	<-w.done
	w.closeFDs()
}

func (w *watcher) closeFDs() {
	unix.Close(w.ep)
	unix.Close(w.wake)
}
