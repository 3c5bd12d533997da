package mm

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/segset"
	"runsc/sentry/mem"
	"runsc/sentry/platform"
)

// lockMode says how a vma is locked.
type lockMode uint8

const (
	unlocked lockMode = iota
	lockOnFault
	lockPopulate
)

// vma is what a guest mapping is (vm_area_struct); its addresses are those
// of its segment.
type vma struct {
	prot    platform.Prot `save:"rec"`
	maxProt platform.Prot `save:"rec"` // what mprotect may give
	shared  bool          `save:"rec"`
	grows   bool          `save:"rec"` // MAP_GROWSDOWN: a stack
	nores   bool          `save:"rec"`
	noFork  bool          `save:"rec"` // MADV_DONTFORK
	wipe    bool          `save:"rec"` // MADV_WIPEONFORK
	noDump  bool          `save:"rec"`
	lock    lockMode      `save:"rec"`
	special bool          `save:"rec"` // not to be moved or merged: vdso, vvar
	stable  bool          `save:"rec"` // see MMapOpts

	file mem.Mappable `save:"rec"`     // nil for private anonymous memory
	obj  any          `save:"rebuilt"` // mem.MapObject(file)
	off  uint64       `save:"rec"`     // of the segment's start in file
	name string       `save:"rec"`     // "[heap]", "[stack]", ...

	// next is where a sequential reader faults next, ahead how much the last
	// fault brought.
	next, ahead uint64 `save:"none: a guess"`
}

type vmaSeg = segset.Seg[*vma]

// sameAs tells whether two vmas differ in nothing but their place.
func (v *vma) sameAs(o *vma) bool {
	return v.prot == o.prot && v.maxProt == o.maxProt && v.shared == o.shared && v.grows == o.grows &&
		v.nores == o.nores && v.noFork == o.noFork && v.wipe == o.wipe && v.noDump == o.noDump &&
		v.lock == o.lock && v.stable == o.stable && !v.special && !o.special && v.file == o.file && v.name == o.name
}

// splitVMA is the Split function of mm.vmas: each part has its own reference
// to the file.
func (mm *MM) splitVMA(v *vma, off uint64) *vma {
	up := *v
	up.next, up.ahead = 0, 0
	if v.file != nil {
		v.file.IncRef()
		up.off += off
	}
	return &up
}

func (mm *MM) mergeVMA(a, b *vmaSeg) bool {
	if !a.V.sameAs(b.V) {
		return false
	}
	if a.V.file != nil {
		if a.V.off+(a.End-a.Start) != b.V.off {
			return false
		}
		mm.garbage = append(mm.garbage, b.V.file)
	}
	return true
}

// count adds (or with sign -1 subtracts) a vma of n bytes to the usage.
func (u *usage) count(v *vma, n uint64, sign int) {
	add := func(p *uint64) {
		if sign > 0 {
			*p += n
		} else {
			*p -= n
		}
	}
	add(&u.total)
	switch {
	case v.grows:
		add(&u.stack)
	case !v.shared && v.prot&platform.Write != 0:
		add(&u.data)
	case v.prot&platform.Exec != 0 && !v.shared:
		add(&u.exec)
	}
	if v.shared {
		add(&u.shared)
	}
	if v.lock != unlocked {
		add(&u.locked)
	}
	if v.accountable(false) {
		add(&u.commit)
		if u.policy != nil {
			u.policy.Commit(int64(n) * int64(sign))
		}
	}
	u.peakTotal = max(u.peakTotal, u.total)
}

// isData tells whether RLIMIT_DATA counts v (is_data_mapping).
func (v *vma) isData() bool {
	return !v.shared && !v.grows && v.prot&platform.Write != 0
}

// mayExpandLocked checks RLIMIT_AS, RLIMIT_DATA and the number of vmas for n
// more bytes like v (may_expand_vm); freed bytes go at the same time.
func (mm *MM) mayExpandLocked(v *vma, n, freed uint64) error {
	if mm.space.total+n-freed > mm.limits(unix.RLIMIT_AS) && n > freed {
		return unix.ENOMEM
	}
	if v.isData() && n > freed && mm.space.data+n-freed > mm.limits(unix.RLIMIT_DATA) {
		return unix.ENOMEM
	}
	// __vm_enough_memory; what overcommit_memory 2 counts is not left out by
	// MAP_NORESERVE.
	if v.accountable(mm.strict()) && n > freed && !mm.acct.MayCommit(n-freed) {
		return unix.ENOMEM
	}
	return mm.roomLocked()
}

// strict tells whether vm.overcommit_memory is 2.
func (mm *MM) strict() bool { return mm.space.policy.Overcommit.Load() == mem.OvercommitNever }

// accountable tells whether v counts as committed (accountable_mapping).
func (v *vma) accountable(strict bool) bool {
	return !v.shared && (strict || !v.nores) && v.prot&platform.Write != 0
}

// maxMapCount is vm.max_map_count.
func (mm *MM) maxMapCount() int { return int(mm.space.policy.MaxMapCount.Load()) }

// roomLocked checks that two vmas more are permitted (max_map_count).
func (mm *MM) roomLocked() error {
	if mm.vmas.Len() >= mm.maxMapCount() {
		return unix.ENOMEM
	}
	return nil
}

// deadMapping is a piece of a file mapping that is gone.
type deadMapping struct {
	file     mem.Mappable
	off, n   int64
	writable bool
}

// dropMappings tells files that mappings are gone. mu must not be held.
func (mm *MM) dropMappings(dead []deadMapping) {
	for _, d := range dead {
		d.file.RemoveMapping(mm, d.off, d.n, d.writable)
		d.file.DecRef()
	}
}

// mapsWritable tells whether the file counts v as a writable mapping.
func (v *vma) mapsWritable() bool {
	return v.shared && v.maxProt&platform.Write != 0
}

// removeLocked unmaps [start, end): host mappings, then pages, then vmas. The
// caller passes the result to dropMappings when mu is released.
func (mm *MM) removeLocked(start, end uint64) []deadMapping {
	var dead []deadMapping
	mm.dropPagesLocked(start, end, true)
	mm.vmas.Remove(start, end, func(s vmaSeg) {
		mm.space.count(s.V, s.End-s.Start, -1)
		if s.V.file != nil {
			dead = append(dead, deadMapping{s.V.file, int64(s.V.off), int64(s.End - s.Start), s.V.mapsWritable()})
		}
	})
	mm.releaseWindowsLocked(start, end)
	return dead
}

// freeLocked tells whether [start, end) is free.
func (mm *MM) freeLocked(start, end uint64) bool {
	return !mm.vmas.Overlaps(start, end)
}
