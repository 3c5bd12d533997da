package pseudo

import (
	"golang.org/x/sys/unix"

	"runsc/sentry/vfs"
)

// Entry is a row of a Table: a name, its d_type, and how to make its node for
// an owner of type T (a file system, a process).
type Entry[T any] struct {
	Name string
	Type uint8 // unix.DT_*
	Make func(T) Node
}

// Table is the fixed part of a directory: package level data, shared by all
// owners.
type Table[T any] []Entry[T]

// Lookup returns the node of a name; ENOENT if there is none.
func (t Table[T]) Lookup(owner T, name string) (Node, error) {
	for i := range t {
		if t[i].Name == name {
			return t[i].Make(owner), nil
		}
	}
	return nil, unix.ENOENT
}

// Each is Dir.Each for the table's names. It tells whether emit wants more.
func (t Table[T]) Each(pos int64, emit func(name string, typ uint8, next int64) bool) bool {
	for i := max(pos, 0); i < int64(len(t)); i++ {
		if !emit(t[i].Name, t[i].Type, i+1) {
			return false
		}
	}
	return true
}

// Dirs counts the directories, for link counts.
func (t Table[T]) Dirs() uint32 {
	n := uint32(0)
	for i := range t {
		if t[i].Type == unix.DT_DIR {
			n++
		}
	}
	return n
}

// TableDir is a directory that consists of a table.
type TableDir[T any] struct {
	Owner T
	Table Table[T]
	Perm  uint32 // 0 means 0555
	Nlink uint32 // 0 means 2 plus the number of directories
}

// Info implements Node.
func (d TableDir[T]) Info(vfs.Caller) (Info, error) {
	i := Info{Mode: unix.S_IFDIR | d.Perm, Nlink: d.Nlink}
	if d.Perm == 0 {
		i.Mode |= 0o555
	}
	if i.Nlink == 0 {
		i.Nlink = 2 + d.Table.Dirs()
	}
	return i, nil
}

// Lookup implements Dir.
func (d TableDir[T]) Lookup(_ vfs.Caller, name string) (Node, error) {
	return d.Table.Lookup(d.Owner, name)
}

// Each implements Dir.
func (d TableDir[T]) Each(_ vfs.Caller, pos int64, emit func(string, uint8, int64) bool) error {
	d.Table.Each(pos, emit)
	return nil
}

// NamesDir is a directory with a computed list of names, all of one type.
type NamesDir struct {
	Type  uint8 // unix.DT_* of the entries
	Perm  uint32
	Names func(c vfs.Caller) []string
	Make  func(name string) Node
}

// Info implements Node.
func (d NamesDir) Info(c vfs.Caller) (Info, error) {
	i := Info{Mode: unix.S_IFDIR | d.Perm, Nlink: 2}
	if d.Perm == 0 {
		i.Mode |= 0o555
	}
	if d.Type == unix.DT_DIR {
		i.Nlink += uint32(len(d.Names(c)))
	}
	return i, nil
}

// Lookup implements Dir.
func (d NamesDir) Lookup(c vfs.Caller, name string) (Node, error) {
	for _, n := range d.Names(c) {
		if n == name {
			return d.Make(n), nil
		}
	}
	return nil, unix.ENOENT
}

// Each implements Dir.
func (d NamesDir) Each(c vfs.Caller, pos int64, emit func(string, uint8, int64) bool) error {
	names := d.Names(c)
	for i := max(pos, 0); i < int64(len(names)); i++ {
		if !emit(names[i], d.Type, i+1) {
			return nil
		}
	}
	return nil
}
