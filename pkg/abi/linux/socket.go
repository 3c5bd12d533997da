package linux

// Msghdr is struct msghdr of sendmsg(2).
type Msghdr struct {
	Name       uint64
	Namelen    uint32
	_          uint32
	Iov        uint64
	Iovlen     uint64
	Control    uint64
	Controllen uint64
	Flags      int32
	_          int32
}

// Mmsghdr is struct mmsghdr of sendmmsg(2).
type Mmsghdr struct {
	Hdr Msghdr
	Len uint32
	_   uint32
}

// Cmsghdr is struct cmsghdr.
type Cmsghdr struct {
	Len   uint64
	Level int32
	Type  int32
}

// SCM_MAX_FD is how many descriptors one message carries.
const SCM_MAX_FD = 253
