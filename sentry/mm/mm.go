package mm

import (
	"crypto/rand"
	"encoding/binary"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"runsc/pkg/segset"
	"runsc/sentry/arch"
	"runsc/sentry/mem"
	"runsc/sentry/platform"
)

const (
	pageSize = mem.PageSize
	pageMask = pageSize - 1

	// minAddr is vm.mmap_min_addr.
	minAddr = 0x10000
	// maxSavedMaps bounds the vmas of an image.
	maxSavedMaps = 1 << 22
	// stackGuardGap is how far a growing stack stays off its neighbour
	// (stack_guard_gap of mm/mmap.c).
	stackGuardGap = 256 * pageSize
)

// LimitFunc returns the soft limit of resource r (unix.RLIMIT_*).
type LimitFunc func(r int) uint64

// Ref is a counted reference to something that an address space only keeps,
// such as the executable file.
type Ref interface {
	IncRef()
	DecRef()
}

// MM is one guest address space. It is shared by the threads of a process.
type MM struct {
	// immutable after New:
	mf     *mem.File      `save:"rebuilt"`
	acct   *mem.Account   `save:"rebuilt"`
	group  platform.Group `save:"rebuilt"`
	limits LimitFunc      `save:"rebuilt"`
	layout layout         `save:"rec"` // changed by the loader only

	users atomic.Int32                          `save:"rebuilt"`
	as    atomic.Pointer[platform.AddressSpace] `save:"none: the host's side comes back by faults"` // mapMu is held to set it

	mapMu sync.Mutex `save:"none: not held at a stop"`

	mu sync.RWMutex `save:"none: not held at a stop"`
	// mu guards (mapMu too is held to change the set of vmas, but for the
	// growth of a stack):
	vmas    segset.Map[*vma]  `save:"rec"`
	pages   segset.Map[page]  `save:"rec"`                                       // the owned ones
	windows map[uint64]uint64 `save:"rec"`                                       // address / WindowSize -> memfile offset
	gen     uint64            `save:"none: only lookups in progress compare it"` // counts calls of Invalidate
	garbage []mem.Mappable    `save:"none: empty when mu is not held"`           // references to drop when mu is released
	space   usage             `save:"rec"`                                       // peaks; the rest is counted again
	future  lockMode          `save:"rec"`                                       // mlockall(MCL_FUTURE)
	brk     brkRange          `save:"rec"`
	info    ProcInfo          `save:"rec"`
	exe     Ref               `save:"rec"`
	hints   []hint            `save:"none: saves faults only"`
	dying   *[]mem.Range      `save:"none: set while the last user leaves"` // when set, frames are collected here, not freed
}

// maxHints is more than a program with an interpreter gives.
const maxHints = 24

// hint is a page that the first thread will touch at once.
type hint struct {
	addr   uint64
	access platform.Prot
}

// layout is where things go (arch_pick_mmap_layout).
type layout struct {
	mmapBase uint64 `save:"rec"`
	stackTop uint64 `save:"rec"`
}

// usage counts bytes of vmas and of resident pages.
type usage struct {
	policy                                           *mem.Policy `save:"rebuilt"` // hears of commit; may be nil
	total, data, stack, exec, locked, shared, commit uint64      `save:"rebuilt"`
	anon, file                                       uint64      `save:"rebuilt"`
	peakTotal, peakRSS                               uint64      `save:"rec"`
}

// ProcInfo has the addresses that /proc/PID/cmdline, environ, auxv and stat show.
type ProcInfo struct {
	CodeStart, CodeEnd uint64 `save:"rec"`
	DataStart, DataEnd uint64 `save:"rec"`
	StackStart         uint64 `save:"rec"`
	ArgStart, ArgEnd   uint64 `save:"rec"`
	EnvStart, EnvEnd   uint64 `save:"rec"`
	Auxv               []byte `save:"rec"`
}

// New returns an empty address space with one user, whose frames are charged
// to acct and whose stubs come from group.
func New(mf *mem.File, acct *mem.Account, group platform.Group, limits LimitFunc) *MM {
	mm := newMM(mf, acct, group, limits)
	mm.layout = pickLayout(limits(unix.RLIMIT_STACK), Random(28)<<12, Random(22)<<12)
	return mm
}

func newMM(mf *mem.File, acct *mem.Account, group platform.Group, limits LimitFunc) *MM {
	mm := &MM{mf: mf, acct: acct, group: group, limits: limits, windows: make(map[uint64]uint64)}
	mm.space.policy = acct.Policy()
	mm.users.Store(1)
	mm.vmas.Split = mm.splitVMA
	mm.vmas.Merge = mm.mergeVMA
	mm.pages.Split = splitPage
	mm.pages.Merge = mergePage
	return mm
}

// Random returns a random number below 1<<bits, for the layout of addresses.
func Random(bits uint) uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return binary.LittleEndian.Uint64(b[:]) & (1<<bits - 1)
}

// pickLayout follows mmap_base of arch/x86/mm/mmap.c: the stack gets its
// limit, between 128 MiB and 5/6 of the address space, below a random top.
func pickLayout(stackLimit, mmapRandom, stackRandom uint64) layout {
	const maxStackRandom = 0x3fffff << 12
	gap := stackLimit
	pad := uint64(maxStackRandom + stackGuardGap)
	if gap+pad > gap {
		gap += pad
	}
	gap = min(max(gap, 128<<20), arch.GuestTop/6*5) &^ pageMask
	return layout{
		mmapBase: arch.GuestTop - gap - mmapRandom,
		stackTop: arch.GuestTop - stackRandom,
	}
}

// NoRandom takes the randomness out of the layout (ADDR_NO_RANDOMIZE). The
// loader calls it before it maps anything.
func (mm *MM) NoRandom() { mm.layout = pickLayout(mm.limits(unix.RLIMIT_STACK), 0, 0) }

// StackTop is where the loader ends the stack.
func (mm *MM) StackTop() uint64 { return mm.layout.stackTop }

// MemFile returns the memfile.
func (mm *MM) MemFile() *mem.File { return mm.mf }

// Account returns what the frames are charged to.
func (mm *MM) Account() *mem.Account { return mm.acct }

// AddressSpace returns the host side of mm, which the first call makes.
func (mm *MM) AddressSpace() (platform.AddressSpace, error) {
	if as := mm.as.Load(); as != nil {
		return *as, nil
	}
	mm.mapMu.Lock()
	defer mm.mapMu.Unlock()
	if as := mm.as.Load(); as != nil {
		return *as, nil
	}
	as, err := mm.group.NewAddressSpace()
	if err != nil {
		return nil, err
	}
	mm.as.Store(&as)
	mm.mu.Lock()
	hints := mm.hints
	mm.hints = nil
	mm.mu.Unlock()
	for _, h := range hints {
		if !mm.hosted(h.addr, h.access) {
			_ = mm.fault(h.addr, h.access, true, false) // else the guest gets it
		}
	}
	return as, nil
}

// Hint tells that the first thread will access addr at once (its program
// counter, its stack): the page is mapped when the address space is made,
// which saves the fault.
func (mm *MM) Hint(addr uint64, access platform.Prot) {
	mm.mu.Lock()
	defer mm.mu.Unlock()
	if len(mm.hints) < maxHints {
		mm.hints = append(mm.hints, hint{addr, access})
	}
}

// IncUsers adds a user (a task); the caller is or holds one.
func (mm *MM) IncUsers() { mm.users.Add(1) }

// Users is the number of users, for decisions that tolerate change.
func (mm *MM) Users() int32 { return mm.users.Load() }

// TryIncUsers adds a user unless there is none left.
func (mm *MM) TryIncUsers() bool {
	for {
		n := mm.users.Load()
		if n == 0 {
			return false
		}
		if mm.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// DecUsers drops a user. The last one unmaps everything and releases the
// host side; no thread may run in it then.
func (mm *MM) DecUsers() {
	switch n := mm.users.Add(-1); {
	case n > 0:
		return
	case n < 0:
		panic("mm: too many DecUsers")
	}
	mm.mapMu.Lock()
	mm.mu.Lock()
	as := mm.as.Swap(nil)
	for i := 0; i < mm.pages.Len(); i++ {
		mm.pages.At(i).V.host = 0
	}
	mm.mu.Unlock()
	if as != nil {
		(*as).Release()
	}
	mm.mu.Lock()
	var frames []mem.Range
	mm.dying = &frames
	windows := mm.windows
	mm.windows = nil
	dead := mm.removeLocked(0, arch.GuestTop)
	exe := mm.exe
	mm.exe = nil
	mm.unlock()
	mm.dropMappings(dead)
	mm.mapMu.Unlock()
	if exe != nil {
		exe.DecRef()
	}
	// Frames are freed only after nothing of the host's can reach them: a
	// stub that was killed dies a little later.
	mm.mf.FreeAfter(goneChan(as), func() {
		for _, r := range frames {
			mm.mf.DecRef(r)
		}
		for _, off := range windows {
			mm.mf.ReleaseWindow(off)
		}
	})
}

// goner is implemented by an address space whose Release does not wait: the
// channel is closed when its mappings are gone.
type goner interface {
	Gone() <-chan struct{}
}

func goneChan(as *platform.AddressSpace) <-chan struct{} {
	if as == nil {
		return nil
	}
	if g, ok := (*as).(goner); ok {
		return g.Gone()
	}
	return nil
}

// unlock releases mu and then drops file references that became
// superfluous under it, which may take locks of files.
func (mm *MM) unlock() {
	g := mm.garbage
	mm.garbage = nil
	mm.mu.Unlock()
	for _, m := range g {
		m.DecRef()
	}
}

// SetInfo stores what the loader laid out.
func (mm *MM) SetInfo(i ProcInfo) {
	mm.mu.Lock()
	defer mm.mu.Unlock()
	mm.info = i
}

// Info returns what SetInfo stored (prctl(PR_SET_MM) does not change it).
func (mm *MM) Info() ProcInfo {
	mm.mu.RLock()
	defer mm.mu.RUnlock()
	return mm.info
}

// SetExe makes f, whose reference mm takes over, the executable (/proc/PID/exe).
func (mm *MM) SetExe(f Ref) {
	mm.mu.Lock()
	old := mm.exe
	mm.exe = f
	mm.mu.Unlock()
	if old != nil {
		old.DecRef()
	}
}

// Exe returns the executable with a new reference, or nil.
func (mm *MM) Exe() Ref {
	mm.mu.RLock()
	defer mm.mu.RUnlock()
	if mm.exe != nil {
		mm.exe.IncRef()
	}
	return mm.exe
}
