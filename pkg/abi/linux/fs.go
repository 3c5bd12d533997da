package linux

// Generic ioctl(2) commands (asm-generic/ioctls.h, linux/fs.h).
const (
	FIONCLEX = 0x5450
	FIOCLEX  = 0x5451
	FIOASYNC = 0x5452
	FIONBIO  = 0x5421
	FIONREAD = 0x541b
	FIOQSIZE = 0x5460
	FIGETBSZ = 2
)

// Commands of fcntl(2) (linux/fcntl.h).
const (
	F_GETOWNER_UIDS = 17
	F_SETLKW        = 7
	F_SETOWN        = 8
	F_SETLEASE      = 1024
	F_GETLEASE      = 1025
	F_NOTIFY        = 1026
	F_CREATED_QUERY = 1028
	F_GETPIPE_SZ    = 1032
)

// Kinds of owners of F_SETOWN_EX.
const (
	F_OWNER_TID  = 0
	F_OWNER_PID  = 1
	F_OWNER_PGRP = 2
)

// FOwnerEx is struct f_owner_ex.
type FOwnerEx struct {
	Type int32
	PID  int32
}

// Flock is struct flock.
type Flock struct {
	Type   int16
	Whence int16
	_      int32
	Start  int64
	Len    int64
	PID    int32
	_      int32
}

// O_LARGEFILE, which libcs for 64-bit machines define as 0 but the kernel
// sets on every open.
const O_LARGEFILE = 0o100000

// Limits of extended attributes (linux/limits.h).
const (
	XATTR_NAME_MAX = 255
	XATTR_SIZE_MAX = 65536
	XATTR_LIST_MAX = 65536
)

// IOV_MAX is UIO_MAXIOV.
const IOV_MAX = 1024

// RESOLVE_CACHED is a flag of openat2(2).
const RESOLVE_CACHED = 0x20

// AT_STATX_SYNC_TYPE masks the flags of statx(2) about synchronization.
const AT_STATX_SYNC_TYPE = 0x6000

// Events of fcntl(F_NOTIFY).
const (
	DN_ACCESS    = 0x1
	DN_MODIFY    = 0x2
	DN_CREATE    = 0x4
	DN_DELETE    = 0x8
	DN_RENAME    = 0x10
	DN_ATTRIB    = 0x20
	DN_MULTISHOT = 0x80000000
)
