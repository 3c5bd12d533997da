package fsproto

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/pkg/hostfs"
)

// MaxFileMessage bounds a datagram of the file protocol: the largest extended
// attribute and a name fit.
const MaxFileMessage = 68 << 10

// Operations of the file protocol. A request is: operation (1 byte), number of
// references to let go (2 bytes) and these (4 bytes each), then what the
// operation takes, in the order in which Files writes it. An answer is: errno
// (4 bytes), then results. Numbers are little-endian, strings have their
// length (2 bytes; data 4 bytes) before them.
const (
	FileChannel  = iota + 1 // with a socket: serve that one too
	FileAttach              // container, mount index: the root of a tree
	FileClose               // nothing but references to let go
	FileStat                // target, name
	FileStatWalk            // reference, names
	FileWalk                // reference, names, whether to stat
	FileReadlink
	FileStatfs
	FileSyncfs
	FileOpen
	FileOpenAt
	FileOpenDir
	FileGetdents
	FileSyncDir
	FileCreate
	FileTmpfile
	FileMake
	FileLink
	FileUnlink
	FileRename
	FileSetAttr
	FileGetxattr
	FileSetxattr
	FileListxattr
	FileRemovexattr
	FileConnect
	FileBind
	FileInotify
	FileWatch
	FileUnwatch
)

// Kinds of a target on the wire.
const (
	targetRef = iota // a number follows
	targetFD         // a descriptor comes with the message
)

// Encoder writes a message.
type Encoder struct{ B []byte }

// U8 appends a byte.
func (e *Encoder) U8(v uint8) { e.B = append(e.B, v) }

// Bool appends a truth value.
func (e *Encoder) Bool(v bool) {
	if v {
		e.U8(1)
	} else {
		e.U8(0)
	}
}

// U16 appends a number of 2 bytes.
func (e *Encoder) U16(v uint16) { e.B = binary.LittleEndian.AppendUint16(e.B, v) }

// U32 appends a number of 4 bytes.
func (e *Encoder) U32(v uint32) { e.B = binary.LittleEndian.AppendUint32(e.B, v) }

// U64 appends a number of 8 bytes.
func (e *Encoder) U64(v uint64) { e.B = binary.LittleEndian.AppendUint64(e.B, v) }

// Str appends a string of less than 64 KiB.
func (e *Encoder) Str(s string) {
	e.U16(uint16(len(s)))
	e.B = append(e.B, s...)
}

// Data appends bytes.
func (e *Encoder) Data(b []byte) {
	e.U32(uint32(len(b)))
	e.B = append(e.B, b...)
}

// Stat appends attributes. Both sides are the same program on one machine, so
// that the structure itself will do.
func (e *Encoder) Stat(stx *unix.Statx_t) { e.B = append(e.B, abi.Bytes(stx)...) }

// Attr appends what a new file is to be.
func (e *Encoder) Attr(a *hostfs.NewAttr) {
	e.U32(a.Mode)
	e.U32(a.UID)
	e.U32(a.GID)
	e.U64(a.Rdev)
	e.Str(a.Link)
}

// Decoder reads a message. After the first thing that is not there Bad is set
// and everything is zero.
type Decoder struct {
	B   []byte
	Bad bool
}

func (d *Decoder) take(n int) []byte {
	if d.Bad || n > len(d.B) {
		d.Bad = true
		return nil
	}
	b := d.B[:n]
	d.B = d.B[n:]
	return b
}

// U8 reads a byte.
func (d *Decoder) U8() uint8 {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

// Bool reads a truth value.
func (d *Decoder) Bool() bool { return d.U8() != 0 }

// U16 reads a number of 2 bytes.
func (d *Decoder) U16() uint16 {
	if b := d.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

// U32 reads a number of 4 bytes.
func (d *Decoder) U32() uint32 {
	if b := d.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

// U64 reads a number of 8 bytes.
func (d *Decoder) U64() uint64 {
	if b := d.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// Str reads a string.
func (d *Decoder) Str() string { return string(d.take(int(d.U16()))) }

// Data reads bytes; they are part of the message.
func (d *Decoder) Data() []byte { return d.take(int(d.U32())) }

// Stat reads attributes.
func (d *Decoder) Stat(stx *unix.Statx_t) {
	b := abi.Bytes(stx)
	copy(b, d.take(len(b)))
}

// Statfs reads what statfs(2) tells.
func (d *Decoder) Statfs(st *unix.Statfs_t) {
	b := abi.Bytes(st)
	copy(b, d.take(len(b)))
}

// Attr reads what a new file is to be.
func (d *Decoder) Attr() *hostfs.NewAttr {
	return &hostfs.NewAttr{Mode: d.U32(), UID: d.U32(), GID: d.U32(), Rdev: d.U64(), Link: d.Str()}
}

// maxNames bounds the components of a walk.
const maxNames = 2048

// Names reads the components of a walk.
func (d *Decoder) Names() []string {
	n := int(d.U16())
	if n > maxNames {
		d.Bad = true
	}
	var names []string
	for range n {
		if d.Bad {
			return nil
		}
		names = append(names, d.Str())
	}
	return names
}

// Names appends the components of a walk.
func (e *Encoder) Names(names []string) {
	e.U16(uint16(len(names)))
	for _, s := range names {
		e.Str(s)
	}
}

// TargetIsFD reads the kind of a target: a descriptor that came with the
// message, or the reference.
func (d *Decoder) TargetIsFD() (fd bool, ref uint32) {
	if d.U8() == targetFD {
		return true, 0
	}
	return false, d.U32()
}

// FileName checks that s is one path component that is neither "." nor "..".
func FileName(s string) bool {
	if s == "" || s == "." || s == ".." || len(s) > 255 {
		return false
	}
	for i := range len(s) {
		if s[i] == '/' || s[i] == 0 {
			return false
		}
	}
	return true
}
