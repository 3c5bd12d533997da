package host

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
)

// Poller waits for readiness of host descriptors. Its goroutine starts with
// the first descriptor and ends at Close.
type Poller struct {
	mu sync.Mutex
	// mu guards:
	epfd    int
	wake    *os.File // write end of a pipe that ends the goroutine
	files   map[int32]*pollFile
	nextTag int32
	done    chan struct{}
}

// pollFile is what the poller notifies.
type pollFile struct {
	tag   int32
	queue *waitq.Queue
}

// NewPoller returns a poller without descriptors.
func NewPoller() *Poller { return &Poller{epfd: -1, files: map[int32]*pollFile{}} }

// add watches fd and notifies queue on every change of its state.
func (p *Poller) add(fd int, queue *waitq.Queue) (*pollFile, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.startLocked(); err != nil {
		return nil, err
	}
	p.nextTag++
	f := &pollFile{tag: p.nextTag, queue: queue}
	ev := unix.EpollEvent{
		Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLPRI | unix.EPOLLET,
		Fd:     f.tag,
	}
	if err := unix.EpollCtl(p.epfd, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return nil, err
	}
	p.files[f.tag] = f
	return f, nil
}

// remove stops watching fd. A notification may still be on its way.
func (p *Poller) remove(fd int, f *pollFile) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.files, f.tag)
	if p.epfd >= 0 {
		_ = unix.EpollCtl(p.epfd, unix.EPOLL_CTL_DEL, fd, nil)
	}
}

func (p *Poller) startLocked() error {
	if p.epfd >= 0 {
		return nil
	}
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		unix.Close(epfd)
		return fmt.Errorf("epoll: %w", err)
	}
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: 0} // tag 0 is no file's
	if err := unix.EpollCtl(epfd, unix.EPOLL_CTL_ADD, pipe[0], &ev); err != nil {
		unix.Close(epfd)
		unix.Close(pipe[0])
		unix.Close(pipe[1])
		return fmt.Errorf("epoll: %w", err)
	}
	p.epfd, p.wake, p.done = epfd, os.NewFile(uintptr(pipe[1]), "wake"), make(chan struct{})
	go p.loop(epfd, pipe[0], p.done)
	return nil
}

// loop is the poller's goroutine.
func (p *Poller) loop(epfd, wake int, done chan struct{}) {
	defer close(done)
	defer unix.Close(wake)
	events := make([]unix.EpollEvent, 64)
	for {
		n, err := unix.EpollWait(epfd, events, -1)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return
		}
		for _, ev := range events[:n] {
			if ev.Fd == 0 {
				return
			}
			p.mu.Lock()
			f := p.files[ev.Fd]
			p.mu.Unlock()
			if f != nil {
				f.queue.Notify(maskOf(ev.Events))
			}
		}
	}
}

// maskOf converts epoll events, whose bits are poll's.
func maskOf(events uint32) waitq.Mask {
	m := waitq.Mask(events & 0x3fff)
	if m&waitq.In != 0 {
		m |= waitq.RdNorm
	}
	if m&waitq.Out != 0 {
		m |= waitq.WrNorm
	}
	return m
}

// Close ends the goroutine and waits for it. Files still watched get no more
// notifications.
func (p *Poller) Close() {
	p.mu.Lock()
	epfd, wake, done := p.epfd, p.wake, p.done
	p.epfd, p.wake = -1, nil
	p.mu.Unlock()
	if epfd < 0 {
		return
	}
	_, _ = wake.Write([]byte{0})
	<-done
	wake.Close()
	unix.Close(epfd)
}
