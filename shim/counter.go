package shim

import (
	"sync"
	"time"
)

// counter counts things that run; unlike a sync.WaitGroup it can be waited for
// with a bound.
type counter struct {
	mu sync.Mutex
	// mu guards:
	n    int
	zero chan struct{} // closed while n is 0
}

func newCounter() *counter {
	c := &counter{zero: make(chan struct{})}
	close(c.zero)
	return c
}

func (c *counter) add(d int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.n
	c.n += d
	switch {
	case was == 0 && c.n > 0:
		c.zero = make(chan struct{})
	case was > 0 && c.n == 0:
		close(c.zero)
	}
}

// wait returns when the count is 0, or after the given time.
func (c *counter) wait(patience time.Duration) bool {
	c.mu.Lock()
	zero := c.zero
	c.mu.Unlock()
	select {
	case <-zero:
		return true
	case <-time.After(patience):
		return false
	}
}
