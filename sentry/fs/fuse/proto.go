package fuse

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"runsc/sentry/vfs"
)

// Operations of the protocol (enum fuse_opcode).
const (
	opLookup      = 1
	opForget      = 2
	opGetattr     = 3
	opSetattr     = 4
	opReadlink    = 5
	opSymlink     = 6
	opMknod       = 8
	opMkdir       = 9
	opUnlink      = 10
	opRmdir       = 11
	opRename      = 12
	opLink        = 13
	opOpen        = 14
	opRead        = 15
	opWrite       = 16
	opStatfs      = 17
	opRelease     = 18
	opFsync       = 20
	opSetxattr    = 21
	opGetxattr    = 22
	opListxattr   = 23
	opRemovexattr = 24
	opFlush       = 25
	opInit        = 26
	opOpendir     = 27
	opReaddir     = 28
	opReleasedir  = 29
	opFsyncdir    = 30
	opAccess      = 34
	opCreate      = 35
	opInterrupt   = 36
	opBatchForget = 42
	opFallocate   = 43
	opRename2     = 45
	opLseek       = 46
	numOps        = 64
)

const (
	protoMajor = 7
	protoMinor = 31
	// minMinor is the oldest minor version of a server: its attributes have
	// today's size, and requests umasks.
	minMinor = 12

	inHeader  = 40
	outHeader = 16
	attrSize  = 88
	entrySize = 128
	direntMin = 24

	rootID = 1

	// minBuffer is FUSE_MIN_READ_BUFFER.
	minBuffer = 8192
	// maxData bounds a READ or WRITE, whatever the server offers.
	maxData = 1 << 20
	// maxReply bounds what the server may write at once.
	maxReply = maxData + 64<<10

	writeHeader = 40 // struct fuse_write_in
)

// Flags of INIT.
const (
	initAsyncRead      = 1 << 0
	initAtomicTrunc    = 1 << 3
	initBigWrites      = 1 << 5
	initDontMask       = 1 << 6
	initParallelDirops = 1 << 18
	initNoOpen         = 1 << 17
	initMaxPages       = 1 << 22
	initNoOpendir      = 1 << 24

	initOffered = initAsyncRead | initAtomicTrunc | initBigWrites | initDontMask | initParallelDirops |
		initNoOpen | initMaxPages | initNoOpendir
)

// Bits of SETATTR's valid (FATTR_*).
const (
	setMode     = 1 << 0
	setUID      = 1 << 1
	setGID      = 1 << 2
	setSize     = 1 << 3
	setAtime    = 1 << 4
	setMtime    = 1 << 5
	setAtimeNow = 1 << 7
	setMtimeNow = 1 << 8
)

// Flags of OPEN's answer (FOPEN_*).
const (
	openDirectIO    = 1 << 0
	openNonseekable = 1 << 2
	openStream      = 1 << 4
)

// Notifications of the server (enum fuse_notify_code).
const (
	notifyInvalInode = 2
	notifyInvalEntry = 3
	notifyDelete     = 6
)

// body builds the arguments of a request.
type body []byte

func (b body) u32(v ...uint32) body {
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return b
}

func (b body) u64(v ...uint64) body {
	for _, x := range v {
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	return b
}

// str appends a string with its end.
func (b body) str(s string) body { return append(append(b, s...), 0) }

func u32(b []byte, at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
func u64(b []byte, at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }

// entry is a decoded struct fuse_entry_out.
type entry struct {
	node, generation      uint64
	entryValid, attrValid uint64 // seconds
	entryNanos, attrNanos uint32
	attr                  vfs.Stat
}

func decodeEntry(b []byte) entry {
	return entry{
		node: u64(b, 0), generation: u64(b, 8), entryValid: u64(b, 16), attrValid: u64(b, 24),
		entryNanos: u32(b, 32), attrNanos: u32(b, 36), attr: decodeAttr(b[40:]),
	}
}

// decodeAttr decodes a struct fuse_attr.
func decodeAttr(b []byte) vfs.Stat {
	t := func(sec, nsec int) vfs.Timespec {
		return vfs.Timespec{Sec: int64(u64(b, sec)), Nsec: min(u32(b, nsec), 999_999_999)}
	}
	dev := u32(b, 76) // new_encode_dev
	st := vfs.Stat{
		Mask: unix.STATX_BASIC_STATS,
		Ino:  u64(b, 0), Size: u64(b, 8), Blocks: u64(b, 16),
		Atime: t(24, 48), Mtime: t(32, 52), Ctime: t(40, 56),
		Mode: u32(b, 60), Nlink: u32(b, 64), UID: u32(b, 68), GID: u32(b, 72),
		Rdev: unix.Mkdev(dev>>8&0xfff, dev&0xff|dev>>12&0xfff00), BlockSize: u32(b, 80),
	}
	if st.BlockSize == 0 {
		st.BlockSize = 4096
	}
	return st
}

// encodeDev is Linux's new_encode_dev.
func encodeDev(dev uint64) uint32 {
	major, minor := unix.Major(dev), unix.Minor(dev)
	return minor&0xff | major<<8 | minor&^0xff<<12
}
