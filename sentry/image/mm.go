package image

// Kinds of records of guest memory.
const (
	KindMM       Kind = 40 // MM
	KindShm      Kind = 41 // Shm
	KindFrames   Kind = 42 // Frames
	KindPageRuns Kind = 43 // PageRuns
)

// MM is an address space.
type MM struct {
	ID       ID     `cbor:"1,keyasint"`
	MMapBase uint64 `cbor:"2,keyasint"`
	StackTop uint64 `cbor:"3,keyasint"`
	BrkStart uint64 `cbor:"4,keyasint,omitempty"`
	BrkEnd   uint64 `cbor:"5,keyasint,omitempty"`
	// Future is how later mappings are locked (mlockall): 0 not, 1 on fault, 2 at once.
	Future    uint8    `cbor:"6,keyasint,omitempty"`
	PeakTotal uint64   `cbor:"7,keyasint,omitempty"`
	PeakRSS   uint64   `cbor:"8,keyasint,omitempty"`
	Info      ProcInfo `cbor:"9,keyasint"`
	Exe       ID       `cbor:"10,keyasint,omitempty"`
	VMAs      []VMA    `cbor:"11,keyasint,omitempty"`
	// VDSO is the layout of the vDSO that VMAs refer to.
	VDSO uint64 `cbor:"12,keyasint,omitempty"`
	// Pages are the private pages; further ones are in the PageRuns records.
	Pages     []PageRun `cbor:"13,keyasint,omitempty"`
	MorePages []ID      `cbor:"14,keyasint,omitempty"`
	// Windows tell where in the memfile further frames go.
	Windows []Window `cbor:"15,keyasint,omitempty"`
}

// ProcInfo has the addresses of an address space's parts.
type ProcInfo struct {
	CodeStart  uint64 `cbor:"1,keyasint,omitempty"`
	CodeEnd    uint64 `cbor:"2,keyasint,omitempty"`
	DataStart  uint64 `cbor:"3,keyasint,omitempty"`
	DataEnd    uint64 `cbor:"4,keyasint,omitempty"`
	StackStart uint64 `cbor:"5,keyasint,omitempty"`
	ArgStart   uint64 `cbor:"6,keyasint,omitempty"`
	ArgEnd     uint64 `cbor:"7,keyasint,omitempty"`
	EnvStart   uint64 `cbor:"8,keyasint,omitempty"`
	EnvEnd     uint64 `cbor:"9,keyasint,omitempty"`
	Auxv       []byte `cbor:"10,keyasint,omitempty"`
}

// Flags of a VMA.
const (
	VMAShared uint32 = 1 << iota
	VMAGrowsDown
	VMANoReserve
	VMANoFork
	VMAWipeOnFork
	VMANoDump
	VMASpecial
	VMAStable
)

// What is behind a VMA.
const (
	VMAAnonymous uint8 = iota
	VMAFile            // an open file description
	VMAShm             // a Shm
	VMAVDSO
)

// VMA is one mapping. Protections are 1 read, 2 write, 4 execute.
type VMA struct {
	Start   uint64 `cbor:"1,keyasint"`
	End     uint64 `cbor:"2,keyasint"`
	Prot    uint8  `cbor:"3,keyasint,omitempty"`
	MaxProt uint8  `cbor:"4,keyasint,omitempty"`
	Flags   uint32 `cbor:"5,keyasint,omitempty"`
	Lock    uint8  `cbor:"6,keyasint,omitempty"`
	Source  uint8  `cbor:"7,keyasint,omitempty"`
	File    ID     `cbor:"8,keyasint,omitempty"`
	Off     uint64 `cbor:"9,keyasint,omitempty"`
	Name    string `cbor:"10,keyasint,omitempty"`
}

// PageRun says that private pages from Addr on are the frames from Frame on.
type PageRun struct {
	Addr  uint64 `cbor:"1,keyasint"`
	Len   uint64 `cbor:"2,keyasint"`
	Frame uint64 `cbor:"3,keyasint"`
	COW   bool   `cbor:"4,keyasint,omitempty"`
}

// PageRuns continues the pages of an MM.
type PageRuns struct {
	ID   ID        `cbor:"1,keyasint"`
	Runs []PageRun `cbor:"2,keyasint,omitempty"`
}

// Window says that frames for the 2 MiB of addresses with number Key are in
// the 2 MiB of the memfile at Off.
type Window struct {
	Key uint64 `cbor:"1,keyasint"`
	Off uint64 `cbor:"2,keyasint"`
}

// Shm is the memory behind a shared anonymous mapping.
type Shm struct {
	ID     ID       `cbor:"1,keyasint"`
	Size   uint64   `cbor:"2,keyasint"`
	Ino    uint64   `cbor:"3,keyasint"`
	Frames []Extent `cbor:"4,keyasint,omitempty"`
}

// Extent says that bytes from Off on are the frames from Frame on.
type Extent struct {
	Off   uint64 `cbor:"1,keyasint"`
	Len   uint64 `cbor:"2,keyasint"`
	Frame uint64 `cbor:"3,keyasint"`
}

// Frames are the frames that an image has: those that pages.img lacks are
// zero.
type Frames struct {
	ID     ID           `cbor:"1,keyasint"`
	Ranges []FrameRange `cbor:"2,keyasint,omitempty"`
}

// FrameRange is a range of the memfile, in pages, of one kind: 0 anonymous
// memory, 1 tmpfs, 2 page cache.
type FrameRange struct {
	First uint64 `cbor:"1,keyasint"`
	Pages uint64 `cbor:"2,keyasint"`
	Kind  uint8  `cbor:"3,keyasint,omitempty"`
}
