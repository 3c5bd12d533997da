package afunix

import (
	"sync"

	"golang.org/x/sys/unix"

	"runsc/sentry/vfs"
)

// maxFlight bounds the descriptors in flight. Linux bounds them for each user
// by RLIMIT_NOFILE.
const maxFlight = 16384

// flightMu guards which files are in inboxes. Files enter and leave inboxes
// under it alone.
var (
	flightMu sync.Mutex
	inFlight = make(map[*vfs.File]int)
	flying   int // all of them, with repetitions
)

// crowded tells whether it is time to look for garbage before more is sent.
func crowded() bool {
	flightMu.Lock()
	defer flightMu.Unlock()
	return flying > maxFlight/2
}

// mayFlyLocked checks the bound: ETOOMANYREFS.
func mayFlyLocked(files []*vfs.File) error {
	if flying+len(files) > maxFlight {
		return unix.ETOOMANYREFS
	}
	return nil
}

// launchLocked counts files that entered an inbox.
func launchLocked(files []*vfs.File) {
	for _, f := range files {
		inFlight[f]++
		flying++
	}
}

// landLocked counts files that left an inbox.
func landLocked(files []*vfs.File) {
	for _, f := range files {
		if inFlight[f]--; inFlight[f] <= 0 {
			delete(inFlight, f)
		}
		flying--
	}
}

func dropFiles(files []*vfs.File) {
	for _, f := range files {
		f.DecRef()
	}
}

// purge empties an inbox.
func (s *Socket) purge() {
	flightMu.Lock()
	s.mu.Lock()
	msgs := s.inbox
	s.inbox, s.bytes = nil, 0
	s.mu.Unlock()
	var files []*vfs.File
	for _, m := range msgs {
		landLocked(m.files)
		files = append(files, m.files...)
	}
	flightMu.Unlock()
	dropFiles(files)
}

// collect drops sockets that only messages refer to which nobody can ever
// receive, because they wait at such sockets (unix_gc).
func collect() {
	for _, s := range garbage() {
		s.mu.Lock()
		pending := s.pending
		s.mu.Unlock()
		s.purge()
		for _, p := range pending {
			p.purge()
		}
	}
}

// garbage returns the sockets in flight that cannot be reached from a
// descriptor.
func garbage() []*Socket {
	flightMu.Lock()
	defer flightMu.Unlock()
	if len(inFlight) == 0 {
		return nil
	}
	reached := make(map[*vfs.File]bool)
	var work []*vfs.File
	for f, n := range inFlight {
		if _, ok := f.Ops().(*Socket); ok && int(f.Refs()) > n {
			reached[f] = true
			work = append(work, f)
		}
	}
	// What lies in the inbox of a socket that is not in flight is reached
	// too: count what the sockets in flight hold, the rest is held elsewhere.
	held := make(map[*vfs.File]int)
	for f := range inFlight {
		if s, ok := f.Ops().(*Socket); ok {
			for _, g := range s.holds() {
				held[g]++
			}
		}
	}
	for f, n := range inFlight {
		if held[f] < n && !reached[f] {
			reached[f] = true
			work = append(work, f)
		}
	}
	for len(work) > 0 {
		s, ok := work[len(work)-1].Ops().(*Socket)
		work = work[:len(work)-1]
		if !ok {
			continue
		}
		for _, g := range s.holds() {
			if !reached[g] {
				reached[g] = true
				work = append(work, g)
			}
		}
	}
	var dead []*Socket
	for f := range inFlight {
		if s, ok := f.Ops().(*Socket); ok && !reached[f] {
			dead = append(dead, s)
		}
	}
	return dead
}

// holds returns the files in the inbox of s, and of the connections that wait
// to be accepted.
func (s *Socket) holds() []*vfs.File {
	s.mu.Lock()
	var files []*vfs.File
	for _, m := range s.inbox {
		files = append(files, m.files...)
	}
	pending := s.pending
	s.mu.Unlock()
	for _, p := range pending {
		files = append(files, p.holds()...)
	}
	return files
}
