package pseudo

import (
	"bytes"

	"golang.org/x/sys/unix"

	"runsc/sentry/vfs"
)

// Info is what stat(2) shows of a node beyond what the file system fills in.
type Info struct {
	Mode     uint32 // type and permission bits
	UID, GID uint32
	Nlink    uint32 // 0 means 1
	Size     uint64
	Rdev     uint64
}

// Node is what a name means. Errors of its methods are those of system calls
// on it: ESRCH or ENOENT if what it shows is gone.
type Node interface {
	Info(c vfs.Caller) (Info, error)
}

// Dir is a directory node. Lookup must accept exactly the names that Each
// gives.
type Dir interface {
	Node
	Lookup(c vfs.Caller, name string) (Node, error) // ENOENT
	// Each calls emit for the entries from position pos on, 0 being the
	// first, with the position after each (at least 1, growing). It stops
	// when emit returns false.
	Each(c vfs.Caller, pos int64, emit func(name string, typ uint8, next int64) bool) error
}

// Reader is a node with content.
type Reader interface {
	Node
	Read(c vfs.Caller, b *bytes.Buffer) error
}

// Writer is a node that can be written to. data is what one write(2) brought,
// at most maxWrite bytes; the number of bytes taken is returned.
type Writer interface {
	Node
	Write(c vfs.Caller, data []byte) (int, error)
}

// Link is a symbolic link.
type Link interface {
	Node
	Readlink(c vfs.Caller) (string, error)
}

// Magic is a link that jumps to a place, whatever its text says. Follow
// returns a new reference.
type Magic interface {
	Link
	Follow(c vfs.Caller) (vfs.Path, error)
}

// Opener is a node that makes its own file operations, or has a say in whether
// it may be opened: with nil operations the generic ones are used.
type Opener interface {
	Node
	Open(c vfs.Caller, flags uint32) (vfs.FileOps, error)
}

// Permitter is a directory that some callers may use whatever its mode says.
type Permitter interface {
	Node
	Permits(c vfs.Caller, mask uint32) bool
}

// Setter is a node whose mode, owner or times can be changed; on others that
// is EPERM.
type Setter interface {
	Node
	SetStat(c vfs.Caller, s *vfs.SetStat) error
}

// File is a generated file owned by root.
type File struct {
	Perm uint32
	Gen  func(c vfs.Caller, b *bytes.Buffer) error
}

// Info implements Node.
func (f File) Info(vfs.Caller) (Info, error) { return Info{Mode: unix.S_IFREG | f.Perm}, nil }

// Read implements Reader.
func (f File) Read(c vfs.Caller, b *bytes.Buffer) error { return f.Gen(c, b) }

// Text is a file with constant content.
type Text struct {
	Perm    uint32
	Content string
}

// Info implements Node.
func (t Text) Info(vfs.Caller) (Info, error) { return Info{Mode: unix.S_IFREG | t.Perm}, nil }

// Read implements Reader.
func (t Text) Read(c vfs.Caller, b *bytes.Buffer) error {
	b.WriteString(t.Content)
	return nil
}

// Knob is a File that can be written to.
type Knob struct {
	File
	Set func(c vfs.Caller, data []byte) (int, error)
}

// Write implements Writer.
func (k Knob) Write(c vfs.Caller, data []byte) (int, error) { return k.Set(c, data) }

// Symlink is a link with a computed text.
type Symlink struct {
	Target func(c vfs.Caller) (string, error)
}

// Info implements Node.
func (Symlink) Info(vfs.Caller) (Info, error) { return Info{Mode: unix.S_IFLNK | 0o777}, nil }

// Readlink implements Link.
func (s Symlink) Readlink(c vfs.Caller) (string, error) { return s.Target(c) }
