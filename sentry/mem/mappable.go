package mem

// Region is a piece of a host file that holds pages of a mapping: guest
// frames in the memfile, or a donated host file.
type Region struct {
	FD  int   // host descriptor, valid while the Mappable is referenced
	Off int64 // page aligned
	Len int64 // bytes, a multiple of the page size
	// Frames is set when FD is the memfile: the caller may read and write
	// the bytes through it.
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
type Mappable interface {
	// Region returns where page off is, and as much as is contiguous from
	// there, at most n bytes. write asks for pages that a shared writable
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
	// Name is the path shown in /proc/PID/maps, Dev and Ino its numbers.
	MapName() (name string, dev uint64, ino uint64)
}
