package vfs

import (
	"sync"
	"sync/atomic"
)

// Tunables has the settings of /proc/sys/fs that calls follow. A container has
// its own.
type Tunables struct {
	// atomic:
	NrOpen           atomic.Int64 // the most that RLIMIT_NOFILE may be
	FileMax          atomic.Int64 // open files; ENFILE without CAP_SYS_ADMIN
	PipeMaxSize      atomic.Int64 // F_SETPIPE_SZ without CAP_SYS_RESOURCE
	InotifyQueued    atomic.Int64 // events of an instance
	InotifyInstances atomic.Int64 // of a user
	InotifyWatches   atomic.Int64 // of a user

	mu sync.Mutex
	// mu guards what users have:
	inotify map[uint32]inotifyUse
}

type inotifyUse struct{ instances, watches int64 }

// NewTunables returns Linux's defaults.
func NewTunables() *Tunables {
	t := &Tunables{inotify: make(map[uint32]inotifyUse)}
	t.NrOpen.Store(1 << 20)
	t.FileMax.Store(1<<63 - 1)
	t.PipeMaxSize.Store(1 << 20)
	t.InotifyQueued.Store(16384)
	t.InotifyInstances.Store(128)
	t.InotifyWatches.Store(524288)
	return t
}

var defaultTunables = NewTunables()

// TunablesOf returns the settings that c is under.
func TunablesOf(c Caller) *Tunables {
	if x, ok := c.(interface{ Tunables() *Tunables }); ok {
		return x.Tunables()
	}
	return defaultTunables
}

// ChargeInotify adds to what a user has, unless that is more than is
// permitted.
func (t *Tunables) ChargeInotify(uid uint32, instances, watches int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.inotify[uid]
	u.instances += instances
	u.watches += watches
	if instances > 0 && u.instances > t.InotifyInstances.Load() || watches > 0 && u.watches > t.InotifyWatches.Load() {
		return false
	}
	t.setInotifyLocked(uid, u)
	return true
}

// UnchargeInotify takes back what ChargeInotify added.
func (t *Tunables) UnchargeInotify(uid uint32, instances, watches int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.inotify[uid]
	t.setInotifyLocked(uid, inotifyUse{max(u.instances-instances, 0), max(u.watches-watches, 0)})
}

func (t *Tunables) setInotifyLocked(uid uint32, u inotifyUse) {
	if u == (inotifyUse{}) {
		delete(t.inotify, uid)
		return
	}
	t.inotify[uid] = u
}

// OpenFiles is the number of open files of the sandbox, for fs.file-nr.
func OpenFiles() int64 { return fileKind.Live() }

// Dentries returns how many dentries there are, and how many of them are
// unused, for fs.dentry-state.
func Dentries() (all, idle int64) {
	unused.mu.Lock()
	defer unused.mu.Unlock()
	return dentryKind.Live(), int64(unused.n)
}
