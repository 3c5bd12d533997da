// Package mm is the guest address space: vmas, page faults, copy-on-write
// fork and the Sentry's access to guest memory. It mirrors mm/mmap.c,
// mm/memory.c, mm/mremap.c, mm/madvise.c and mm/mlock.c of Linux.
//
// MM has three maps, from intent to host. The vmas say what the guest asked
// for. The pages (type page) say where bytes are: frames that the MM owns
// references to (private memory), or a place that a Mappable told (shared and
// unmodified file pages), which is only a cache. The host field of a page
// says with which protection the stub process has it mapped; ranges that
// never were are never unmapped or protected there.
//
// Memory comes lazily. A fault allocates or maps a range around the address:
// 64 KiB of anonymous memory, growing while touches are sequential, or the
// whole vma for a host file. Anonymous frames are congruent with their
// address inside 2 MiB windows, so that host mappings merge. When the host
// refuses one mapping more, all of the address space's are dropped and come
// back by faults.
//
// # Locks
//
// mapMu, held by calls that change the set of vmas, then locks of files
// (Mappable.AddMapping, RemoveMapping, DecRef), then mu, which guards
// everything else and is held by Invalidate. Mappable.Region is called
// without mu and its answer is dropped if an Invalidate came between. User
// copies hold mu for reading. Below mu are only leaves: those of the memfile
// and of the platform's address space.
package mm
