package state

import (
	"sync"

	"runsc/sentry/mem"
)

// loader tells the containers of an image about its pages.
type loader struct {
	frames *mem.FrameMap // immutable

	mu sync.Mutex // a leaf: an access that fails takes it
	// mu guards:
	watchers []func(error)
	ready    bool // no container is to come
	started  bool
	ended    bool
	err      error
}

// watch has done called when all pages are there, or with an error.
func (l *loader) watch(done func(error)) {
	l.mu.Lock()
	if l.ended {
		err := l.err
		l.mu.Unlock()
		done(err)
		return
	}
	l.watchers = append(l.watchers, done)
	first := len(l.watchers) == 1
	l.mu.Unlock()
	if first {
		l.frames.Watch(l.notify)
	}
	l.start()
}

// allRestored says that no container is to come.
func (l *loader) allRestored() {
	l.mu.Lock()
	l.ready = true
	l.mu.Unlock()
	l.start()
}

// start starts the loading when it is time.
func (l *loader) start() {
	l.mu.Lock()
	now := l.ready && !l.started && len(l.watchers) > 0
	l.started = l.started || now
	l.mu.Unlock()
	if now {
		l.frames.StartLoader(l.notify)
	}
}

func (l *loader) notify(err error) {
	l.mu.Lock()
	watchers := l.watchers
	if !l.ended {
		l.ended, l.err = true, err
	}
	l.watchers = nil
	l.mu.Unlock()
	for _, done := range watchers {
		done(err)
	}
}
