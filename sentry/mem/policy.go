package mem

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Values of Policy.Overcommit (vm.overcommit_memory).
const (
	OvercommitGuess  = iota // refuse what can never fit
	OvercommitAlways        // refuse nothing
	OvercommitNever         // refuse what goes beyond CommitLimit
)

// DefaultMaxMapCount is the initial vm.max_map_count.
const DefaultMaxMapCount = 65530

// Policy has the settings of /proc/sys/vm that the memory calls of a
// container's processes follow.
type Policy struct {
	// atomic:
	MaxMapCount      atomic.Int64
	Overcommit       atomic.Int64
	OvercommitRatio  atomic.Int64 // percent
	OvercommitKbytes atomic.Int64 // 0: the ratio counts
	committed        atomic.Int64
}

func (p *Policy) init() {
	p.MaxMapCount.Store(DefaultMaxMapCount)
	p.OvercommitRatio.Store(50)
}

var noAccount = func() *Policy {
	p := new(Policy)
	p.init()
	return p
}()

// Policy returns the settings of the account's container.
func (a *Account) Policy() *Policy {
	if a == nil {
		return noAccount
	}
	return &a.policy
}

// Commit counts n bytes more, or fewer, of private writable memory.
func (p *Policy) Commit(n int64) { p.committed.Add(n) }

// Committed is Committed_AS of /proc/meminfo.
func (p *Policy) Committed() uint64 { return uint64(max(p.committed.Load(), 0)) }

// CommitLimit is what may be committed with OvercommitNever, in bytes
// (vm_commit_limit).
func (a *Account) CommitLimit() uint64 {
	p := a.Policy()
	if kb := p.OvercommitKbytes.Load(); kb > 0 {
		return uint64(min(kb, 1<<50)) << 10
	}
	total := HostMemory()
	if a != nil {
		if l := a.Limit(); l != 0 {
			total = min(total, l)
		}
	}
	return total / 100 * uint64(min(max(p.OvercommitRatio.Load(), 0), 1<<20))
}

// MayCommit tells whether n bytes more may be committed
// (__vm_enough_memory).
func (a *Account) MayCommit(n uint64) bool {
	p := a.Policy()
	switch p.Overcommit.Load() {
	case OvercommitAlways:
		return true
	case OvercommitNever:
		used, limit := p.Committed(), a.CommitLimit()
		return used+n >= used && used+n <= limit
	}
	return n <= HostMemory()
}

// HostMemory is the memory of the host in bytes.
var HostMemory = sync.OnceValue(func() uint64 {
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) != nil {
		return 1 << 62
	}
	return uint64(si.Totalram) * uint64(si.Unit)
})
