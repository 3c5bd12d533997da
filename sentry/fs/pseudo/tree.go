package pseudo

import (
	"strings"

	"golang.org/x/sys/unix"

	"runsc/sentry/vfs"
)

// TreeEntry is a row of a Tree: a path relative to the tree's root and how to
// make its node. Without Make it is a directory whose entries are other rows.
type TreeEntry[T any] struct {
	Path string
	Type uint8 // unix.DT_*
	Make func(T) Node
}

// Tree is a hierarchy given by its paths: package level data. Directories on
// the way to a path exist without rows of their own; the rows below one
// directory must be next to each other.
type Tree[T any] []TreeEntry[T]

// TreeDir is a directory of a Tree.
type TreeDir[T any] struct {
	Owner T
	Tree  Tree[T]
	Path  string // "" is the root; else without slashes at the ends
	Perm  uint32 // of all directories; 0 means 0555
	// OneLink gives directories a link count of 1, as proc's sys has.
	OneLink bool
}

// Info implements Node.
func (d TreeDir[T]) Info(c vfs.Caller) (Info, error) {
	i := Info{Mode: unix.S_IFDIR | d.Perm, Nlink: 1}
	if d.Perm == 0 {
		i.Mode |= 0o555
	}
	if !d.OneLink {
		i.Nlink = 2
		_ = d.Each(c, 0, func(_ string, typ uint8, _ int64) bool {
			if typ == unix.DT_DIR {
				i.Nlink++
			}
			return true
		})
	}
	return i, nil
}

// below splits a row's path: the first component below d, and whether it is
// the last. ok is false if the row is not below d.
func (d TreeDir[T]) below(path string) (name string, last, ok bool) {
	if d.Path != "" {
		if len(path) <= len(d.Path) || path[len(d.Path)] != '/' || path[:len(d.Path)] != d.Path {
			return "", false, false
		}
		path = path[len(d.Path)+1:]
	}
	name, _, more := strings.Cut(path, "/")
	return name, !more, true
}

// Lookup implements Dir.
func (d TreeDir[T]) Lookup(_ vfs.Caller, name string) (Node, error) {
	for i := range d.Tree {
		n, last, ok := d.below(d.Tree[i].Path)
		if !ok || n != name {
			continue
		}
		if last && d.Tree[i].Make != nil {
			return d.Tree[i].Make(d.Owner), nil
		}
		d.Path = strings.TrimPrefix(d.Path+"/"+name, "/")
		return d, nil
	}
	return nil, unix.ENOENT
}

// Each implements Dir. A position is the number of the row after which to go
// on.
func (d TreeDir[T]) Each(_ vfs.Caller, pos int64, emit func(string, uint8, int64) bool) error {
	prev := ""
	if pos > 0 && pos <= int64(len(d.Tree)) {
		prev, _, _ = d.below(d.Tree[pos-1].Path)
	}
	for i := max(pos, 0); i < int64(len(d.Tree)); i++ {
		name, last, ok := d.below(d.Tree[i].Path)
		if !ok || name == prev {
			continue
		}
		prev = name
		typ := uint8(unix.DT_DIR)
		if last && d.Tree[i].Make != nil {
			typ = d.Tree[i].Type
		}
		if !emit(name, typ, i+1) {
			return nil
		}
	}
	return nil
}
