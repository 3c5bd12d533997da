package syscalls

import (
	"golang.org/x/sys/unix"

	"runsc/sentry/kernel"
	"runsc/sentry/mem"
	"runsc/sentry/mm"
	"runsc/sentry/platform"
	"runsc/sentry/vfs"
)

const (
	pageMask = mem.PageSize - 1

	mapTypeMask = 0xf
	protSem     = 0x8 // PROT_SEM
	// mapLegacy are the flags that MAP_SHARED_VALIDATE accepts (LEGACY_MAP_MASK).
	mapLegacy = unix.MAP_SHARED | unix.MAP_PRIVATE | unix.MAP_FIXED | unix.MAP_ANONYMOUS | unix.MAP_DENYWRITE |
		unix.MAP_EXECUTABLE | unix.MAP_GROWSDOWN | unix.MAP_LOCKED | unix.MAP_NORESERVE | unix.MAP_POPULATE |
		unix.MAP_NONBLOCK | unix.MAP_STACK | unix.MAP_HUGETLB | unix.MAP_32BIT | unix.MAP_FIXED_NOREPLACE
)

func protOf(prot int32) platform.Prot {
	// platform.Prot has the values of PROT_READ, PROT_WRITE and PROT_EXEC.
	return platform.Prot(prot & (unix.PROT_READ | unix.PROT_WRITE | unix.PROT_EXEC))
}

// sysMmap implements mmap(2).
func sysMmap(t *kernel.Task, a Args) (uintptr, error) {
	flags := a.Int(3)
	o := mm.MMapOpts{
		Addr: a.Addr(0), Len: a.Size(1), Prot: protOf(a.Int(2)), Off: a.Uint64(5),
		Fixed:     flags&(unix.MAP_FIXED|unix.MAP_FIXED_NOREPLACE) != 0,
		NoReplace: flags&unix.MAP_FIXED_NOREPLACE != 0,
		Low2G:     flags&unix.MAP_32BIT != 0,
		GrowsDown: flags&unix.MAP_GROWSDOWN != 0,
		NoReserve: flags&unix.MAP_NORESERVE != 0,
		Locked:    flags&unix.MAP_LOCKED != 0,
		Stable:    flags&unix.MAP_DENYWRITE != 0, // ld.so says so of libraries
		Populate:  flags&(unix.MAP_POPULATE|unix.MAP_NONBLOCK) == unix.MAP_POPULATE,
	}
	if o.Off&pageMask != 0 { // sys_mmap of arch/x86/kernel/sys_x86_64.c
		return 0, unix.EINVAL
	}
	var f *vfs.File
	if flags&unix.MAP_ANONYMOUS == 0 {
		var err error
		if f, err = getFile(t, a.Int(4)); err != nil {
			return 0, err
		}
		defer f.DecRef()
		if flags&unix.MAP_HUGETLB != 0 {
			return 0, unix.EINVAL
		}
	} else {
		o.Off = 0
		if flags&unix.MAP_HUGETLB != 0 {
			return 0, unix.ENOMEM // no huge pages are set aside
		}
	}
	if o.Len == 0 {
		return 0, unix.EINVAL
	}
	if o.Locked {
		if o.Privileged = t.Cred().Has(unix.CAP_IPC_LOCK); !o.Privileged && t.Rlimit(unix.RLIMIT_MEMLOCK) == 0 {
			return 0, unix.EPERM
		}
	}
	if err := mapType(&o, f, flags); err != nil {
		return 0, err
	}
	if f != nil {
		m, err := f.Mappable(t)
		if err != nil {
			return 0, err
		}
		o.File = m
	}
	addr, err := t.MM().MMap(o)
	return uintptr(addr), err
}

// mapType checks what do_mmap checks of the type of a mapping and the file
// behind it.
func mapType(o *mm.MMapOpts, f *vfs.File, flags int32) error {
	switch flags & mapTypeMask {
	case unix.MAP_SHARED_VALIDATE:
		if f == nil {
			return unix.EINVAL
		}
		if flags&^(mapLegacy|unix.MAP_SHARED_VALIDATE) != 0 {
			return unix.EOPNOTSUPP
		}
		o.Shared = true
	case unix.MAP_SHARED:
		o.Shared = true
	case unix.MAP_PRIVATE:
	default:
		return unix.EINVAL
	}
	if o.GrowsDown && (o.Shared || f != nil) {
		return unix.EINVAL
	}
	if f == nil {
		return nil
	}
	o.MaxProt = mm.AnyProt
	if o.Shared && o.Prot&platform.Write != 0 && !f.Writable() {
		return unix.EACCES
	}
	if !f.Readable() {
		return unix.EACCES
	}
	if o.Shared && !f.Writable() {
		o.MaxProt &^= platform.Write
	}
	if f.Path().Mount.Flags()&unix.MS_NOEXEC != 0 {
		if o.Prot&platform.Exec != 0 {
			return unix.EPERM
		}
		o.MaxProt &^= platform.Exec
	}
	return nil
}

// sysMunmap implements munmap(2).
func sysMunmap(t *kernel.Task, a Args) (uintptr, error) {
	return done(t.MM().MUnmap(a.Addr(0), a.Size(1)))
}

// sysMprotect implements mprotect(2).
func sysMprotect(t *kernel.Task, a Args) (uintptr, error) {
	prot := a.Int(2)
	grows := prot & (unix.PROT_GROWSDOWN | unix.PROT_GROWSUP)
	prot &^= grows
	if grows == unix.PROT_GROWSDOWN|unix.PROT_GROWSUP {
		return 0, unix.EINVAL
	}
	if a.Addr(0)&pageMask != 0 {
		return 0, unix.EINVAL
	}
	if a.Size(1) == 0 {
		return 0, nil
	}
	if prot&^(unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC|protSem) != 0 || grows == unix.PROT_GROWSUP {
		return 0, unix.EINVAL
	}
	return done(t.MM().MProtect(a.Addr(0), a.Size(1), protOf(prot), grows == unix.PROT_GROWSDOWN))
}

// sysMremap implements mremap(2).
func sysMremap(t *kernel.Task, a Args) (uintptr, error) {
	addr, err := t.MM().MRemap(a.Addr(0), a.Size(1), a.Size(2), int(a.Int(3)), a.Addr(4))
	return uintptr(addr), err
}

// sysBrk implements brk(2), which has no errors: it returns the end of the heap.
func sysBrk(t *kernel.Task, a Args) (uintptr, error) {
	return uintptr(t.MM().Brk(a.Addr(0))), nil
}

// sysMadvise implements madvise(2).
func sysMadvise(t *kernel.Task, a Args) (uintptr, error) {
	return done(t.MM().MAdvise(a.Addr(0), a.Size(1), int(a.Int(2))))
}

// sysMincore implements mincore(2).
func sysMincore(t *kernel.Task, a Args) (uintptr, error) {
	vec := a.Addr(2)
	return done(t.MM().MIncore(a.Addr(0), a.Size(1), func(p []byte) error {
		err := t.CopyOut(vec, p)
		vec += uint64(len(p))
		return err
	}))
}

// sysMsync implements msync(2).
func sysMsync(t *kernel.Task, a Args) (uintptr, error) {
	return done(t.MM().MSync(a.Addr(0), a.Size(1), int(a.Int(2))))
}

// sysMlock implements mlock(2).
func sysMlock(t *kernel.Task, a Args) (uintptr, error) {
	return done(t.MM().MLock(a.Addr(0), a.Size(1), false, t.Cred().Has(unix.CAP_IPC_LOCK)))
}

// mlockOnFault is MLOCK_ONFAULT.
const mlockOnFault = 1

// sysMlock2 implements mlock2(2).
func sysMlock2(t *kernel.Task, a Args) (uintptr, error) {
	if a.Int(2)&^mlockOnFault != 0 {
		return 0, unix.EINVAL
	}
	return done(t.MM().MLock(a.Addr(0), a.Size(1), a.Int(2) != 0, t.Cred().Has(unix.CAP_IPC_LOCK)))
}

// sysMunlock implements munlock(2).
func sysMunlock(t *kernel.Task, a Args) (uintptr, error) {
	return done(t.MM().MUnlock(a.Addr(0), a.Size(1)))
}

// sysMlockall implements mlockall(2).
func sysMlockall(t *kernel.Task, a Args) (uintptr, error) {
	return done(t.MM().MLockAll(int(a.Int(0)), t.Cred().Has(unix.CAP_IPC_LOCK)))
}

// sysMunlockall implements munlockall(2).
func sysMunlockall(t *kernel.Task, _ Args) (uintptr, error) {
	t.MM().MUnlockAll()
	return 0, nil
}
