//go:build lockrank

package ksync

import (
	"bytes"
	"fmt"
	"runtime"
	"strconv"
	"sync"
)

// Enabled tells whether orders are checked.
const Enabled = true

// Mutex is a mutex that checks the order of locks.
type Mutex struct {
	mu   sync.Mutex
	name string
}

// Rank gives m its name in sentry/LOCKS.
func Rank(m *Mutex, name string) { m.name = name }

// Lock locks m.
func (m *Mutex) Lock() {
	acquire(m, m.name)
	m.mu.Lock()
}

// TryLock locks m if it is free.
func (m *Mutex) TryLock() bool {
	if !m.mu.TryLock() {
		return false
	}
	hold(m, m.name)
	return true
}

// Unlock unlocks m.
func (m *Mutex) Unlock() {
	release(m)
	m.mu.Unlock()
}

// RWMutex is a reader/writer mutex that checks the order of locks.
type RWMutex struct {
	mu   sync.RWMutex
	name string
}

// RankRW gives m its name.
func RankRW(m *RWMutex, name string) { m.name = name }

// Lock locks m for writing.
func (m *RWMutex) Lock() {
	acquire(m, m.name)
	m.mu.Lock()
}

// Unlock undoes Lock.
func (m *RWMutex) Unlock() {
	release(m)
	m.mu.Unlock()
}

// RLock locks m for reading.
func (m *RWMutex) RLock() {
	acquire(m, m.name)
	m.mu.RLock()
}

// RUnlock undoes RLock.
func (m *RWMutex) RUnlock() {
	release(m)
	m.mu.RUnlock()
}

// AssertHeld panics if the goroutine does not hold m.
func AssertHeld(m *Mutex) {
	state.mu.Lock()
	defer state.mu.Unlock()
	for _, h := range state.held[goid()] {
		if h.lock == any(m) {
			return
		}
	}
	panic("ksync: " + label(m.name) + " is not held")
}

type holding struct {
	lock any
	name string
}

var state = struct {
	mu sync.Mutex
	// mu guards:
	held  map[uint64][]holding       // by goroutine
	after map[string]map[string]bool // a: what may come after a
}{held: map[uint64][]holding{}, after: map[string]map[string]bool{}}

func label(name string) string {
	if name == "" {
		return "a lock without a name"
	}
	return name
}

// acquire checks the order before a lock is taken and notes it as held.
func acquire(lock any, name string) {
	id := goid()
	state.mu.Lock()
	defer state.mu.Unlock()
	for _, h := range state.held[id] {
		switch {
		case h.lock == lock:
			panic("ksync: " + label(name) + " is held already")
		case h.name == "" || name == "":
		case h.name == name:
			panic("ksync: two of " + name)
		case reaches(name, h.name):
			panic(fmt.Sprintf("ksync: %s is taken under %s, which comes after it", name, h.name))
		default:
			edge(h.name, name)
		}
	}
	state.held[id] = append(state.held[id], holding{lock, name})
}

func hold(lock any, name string) {
	id := goid()
	state.mu.Lock()
	defer state.mu.Unlock()
	state.held[id] = append(state.held[id], holding{lock, name})
}

func release(lock any) {
	id := goid()
	state.mu.Lock()
	defer state.mu.Unlock()
	hs := state.held[id]
	for i := len(hs) - 1; i >= 0; i-- {
		if hs[i].lock == lock {
			hs = append(hs[:i], hs[i+1:]...)
			if len(hs) == 0 {
				delete(state.held, id)
			} else {
				state.held[id] = hs
			}
			return
		}
	}
	// Unlocked by another goroutine than locked it, which mutexes allow.
}

func edge(a, b string) {
	if state.after[a] == nil {
		state.after[a] = map[string]bool{}
	}
	state.after[a][b] = true
}

// reaches tells whether b may come after a.
func reaches(a, b string) bool {
	seen := map[string]bool{}
	var walk func(string) bool
	walk = func(n string) bool {
		if n == b {
			return true
		}
		if seen[n] {
			return false
		}
		seen[n] = true
		for next := range state.after[n] {
			if walk(next) {
				return true
			}
		}
		return false
	}
	return walk(a)
}

// Declare loads an order in the language of sentry/LOCKS.
func Declare(text string) error {
	edges, err := Parse(text)
	if err != nil {
		return err
	}
	state.mu.Lock()
	defer state.mu.Unlock()
	for _, e := range edges {
		if reaches(e[1], e[0]) {
			return fmt.Errorf("%s < %s closes a circle", e[0], e[1])
		}
		edge(e[0], e[1])
	}
	return nil
}

// goid returns the number of the goroutine, from its stack trace.
func goid() uint64 {
	var b [64]byte
	n := runtime.Stack(b[:], false)
	s := bytes.TrimPrefix(b[:n], []byte("goroutine "))
	id, _ := strconv.ParseUint(string(s[:bytes.IndexByte(s, ' ')]), 10, 64)
	return id
}
