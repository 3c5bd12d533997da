package cpufeature

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Unusable are features that no guest may count on, whatever its mask: the Sentry keeps the segment bases itself and
// does not let transactions abort as the processor would.
var Unusable = []string{"fsgsbase", "hle", "rtm"}

// Check returns an error that names a feature which is not known or which no mask can hide.
func Check(names []string) error {
	for _, name := range names {
		if baseline[name] {
			return fmt.Errorf("%q cannot be hidden: every 64-bit program counts on it", name)
		}
		if !known(name) {
			return fmt.Errorf("%q is no processor feature that CPUID tells of", name)
		}
	}
	return nil
}

// known are the names in words.
func known(name string) bool {
	for _, w := range words {
		if slices.ContainsFunc(w.bits, func(b bit) bool { return b.name == name }) {
			return true
		}
	}
	return false
}

// Hidden returns the names and those of all features that need one of them, sorted.
func Hidden(names []string) []string {
	hidden := map[string]bool{}
	for _, name := range names {
		hidden[name] = true
	}
	for more := true; more; {
		more = false
		for name, needed := range needs {
			if !hidden[name] && slices.ContainsFunc(needed, func(n string) bool { return hidden[n] }) {
				hidden[name], more = true, true
			}
		}
	}
	var all []string
	for name := range hidden {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// Mask hides features of the host's processor.
type Mask struct {
	// immutable after New:
	hidden map[string]bool
	clear  map[place]uint32

	mu sync.Mutex
	// mu guards:
	cache map[query][4]uint32
}

type place struct {
	leaf uint32
	sub  int
	reg  int
}

type query struct{ leaf, sub uint32 }

// New returns a mask that hides the features, what needs them, and what is Unusable.
func New(names []string) (*Mask, error) {
	if err := Check(names); err != nil {
		return nil, err
	}
	m := &Mask{hidden: map[string]bool{}, clear: map[place]uint32{}, cache: map[query][4]uint32{}}
	for _, name := range Hidden(slices.Concat(names, Unusable)) {
		m.hidden[name] = true
	}
	for _, w := range words {
		for _, b := range w.bits {
			if m.hidden[b.name] {
				m.clear[place{w.leaf, w.sub, w.reg}] |= 1 << b.n
			}
		}
	}
	return m, nil
}

// Hides reports whether the mask hides a feature.
func (m *Mask) Hides(name string) bool { return m.hidden[name] }

// HWCap returns AT_HWCAP without what is hidden: it is a copy of CPUID's leaf 1, EDX.
func (m *Mask) HWCap(v uint64) uint64 { return v &^ uint64(m.clear[place{1, anySub, edx}]) }

// extended is where the second range of leaves begins; what is beyond the last of a range is answered as the last one
// of the first.
const extended = 0x80000000

// maxCached bounds the answers that are kept: under a hypervisor each CPUID takes tens of microseconds, and programs
// ask the same few leaves at each start.
const maxCached = 128

// CPUID returns what the instruction answers a guest, in EAX, EBX, ECX and EDX. Which processor it ran on, leaf 0xb
// and others, is that of the first call.
func (m *Mask) CPUID(leaf, sub uint32) [4]uint32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	q := query{leaf, sub}
	if r, ok := m.cache[q]; ok {
		return r
	}
	r := m.ask(leaf, sub)
	if len(m.cache) < maxCached {
		m.cache[q] = r
	}
	return r
}

func (m *Mask) ask(leaf, sub uint32) (r [4]uint32) {
	r[eax], r[ebx], r[ecx], r[edx] = cpuid(leaf, sub)
	if last, _, _, _ := cpuid(leaf&extended, 0); leaf > last {
		leaf, _, _, _ = cpuid(0, 0)
	}
	for reg := range r {
		r[reg] &^= m.clear[place{leaf, anySub, reg}] | m.clear[place{leaf, int(sub), reg}]
	}
	return r
}

// Filter returns a list of flags, as in /proc/cpuinfo, without what is hidden.
func (m *Mask) Filter(flags string) string {
	return strings.Join(slices.DeleteFunc(strings.Fields(flags), m.Hides), " ")
}

// archCPUID is arch_prctl(2)'s ARCH_SET_CPUID.
const archCPUID = 0x1012

// Faulting reports whether this host can be told to let CPUID fault, without which nothing can be hidden.
func Faulting() bool {
	// To allow what is allowed already changes nothing, and is ENODEV where it could not be forbidden.
	_, _, e := unix.RawSyscall(unix.SYS_ARCH_PRCTL, archCPUID, 1, 0)
	return e == 0
}

// SetFaulting lets CPUID fault, or not, in this thread and in what it clones.
func SetFaulting(on bool) unix.Errno {
	allowed := uintptr(1)
	if on {
		allowed = 0
	}
	_, _, e := unix.RawSyscall(unix.SYS_ARCH_PRCTL, archCPUID, allowed, 0)
	return e
}
