package mem

// Region is a piece of a host file that holds pages of a mapping: guest
// frames in the memfile, or a donated host file.
type Region struct {
	FD  int   // host descriptor, valid while the Mappable is referenced
	Off int64 // page aligned
	Len int64 // bytes, a multiple of the page size
	// Frames is set when the pages are frames of the memfile, and Off the
	// number of the first: the caller may read and write the bytes through it
	// and maps what File.HostPlace tells.
	Frames bool
}

// MappingSpace is the address space side of a file's mappings; *mm.MM
// implements it.
type MappingSpace interface {
	// Invalidate removes host mappings of pages [off, off+n) of m. With
	// private set, copies that private mappings made of those pages go too
	// (truncate does that).
	Invalidate(m Mappable, off, n int64, private bool)
}

// Mappable is a file that can be mapped with mmap(2). Offsets and lengths are
// page aligned.
//
// An address space calls Region from page faults, which happen inside user
// copies: no method may take a lock that is held across a user copy. It never
// calls a method, IncRef apart, with the lock held that Invalidate takes, so
// Invalidate may be called with any lock of the file held. Whoever frees
// frames or shrinks a file first makes Region stop returning the pages, then
// calls Invalidate, then frees.
type Mappable interface {
	// Region returns where page off is, and as much as is contiguous from
	// there, at most n bytes, which may be megabytes: of what has to be read
	// or allocated first, some 64 KiB are enough. write asks for pages that a shared writable
	// mapping may dirty (holes are then filled). A page wholly beyond the
	// end of the file is EFAULT (the guest gets SIGBUS); ENOSPC and EIO too
	// become SIGBUS.
	Region(off, n int64, write bool) (Region, error)
	// AddMapping and RemoveMapping keep the file's list of spaces that map
	// part of it, for Invalidate.
	AddMapping(s MappingSpace, off, n int64, writable bool) error
	RemoveMapping(s MappingSpace, off, n int64, writable bool)
	// IncRef and DecRef hold the file for a vma (the open file description's reference).
	IncRef()
	DecRef()
	// MapName is the path shown in /proc/PID/maps, Dev and Ino its numbers.
	MapName() (name string, dev uint64, ino uint64)
}

// MapObjecter is implemented by a Mappable that exists once per open file
// description: MapObject returns what is the same for all descriptions of one
// file (comparable). Invalidate and shared futexes go by it.
type MapObjecter interface {
	MapObject() any
}

// MapObject returns the identity of the file behind m.
func MapObject(m Mappable) any {
	if o, ok := m.(MapObjecter); ok {
		return o.MapObject()
	}
	return m
}
