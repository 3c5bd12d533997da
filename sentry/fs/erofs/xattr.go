package erofs

import (
	"slices"

	"golang.org/x/sys/unix"

	"runsc/sentry/vfs"
)

const (
	xattrHeader = 12 // of an inode's attributes
	xattrEntry  = 4  // of one
	maxXattr    = 64 << 10
)

// prefixes are those of names, by their number in the image. Others (long prefixes of the image's own, other file
// systems') are not shown.
var prefixes = map[uint8]string{
	1: "user.",
	2: "system.posix_acl_access",
	3: "system.posix_acl_default",
	4: "trusted.",
	6: "security.",
}

// attribute is an extended attribute.
type attribute struct {
	name  string
	value []byte
}

// attributes reads the extended attributes of an inode.
func (v *volume) attributes(a *attrs) ([]attribute, error) {
	if a.xattrLen == 0 {
		return nil, nil
	}
	b := make([]byte, a.xattrLen) // at most 256 KiB, the count has 16 bits
	if err := v.read(b, a.xattrs); err != nil {
		return nil, err
	}
	shared := int(b[4])
	if len(b) < xattrHeader+4*shared {
		return nil, errCorrupt
	}
	var all []attribute
	for i := range shared {
		var h [xattrEntry]byte
		at := v.xattr + 4*int64(le.Uint32(b[xattrHeader+4*i:]))
		if err := v.read(h[:], at); err != nil {
			return nil, err
		}
		e := make([]byte, entrySize(h[:]))
		if err := v.read(e, at); err != nil {
			return nil, err
		}
		all = appendAttribute(all, e)
	}
	for b = b[xattrHeader+4*shared:]; len(b) >= xattrEntry; {
		n := entrySize(b)
		if n > len(b) {
			return nil, errCorrupt
		}
		if b[0] == 0 && b[1] == 0 {
			break // padding
		}
		all = appendAttribute(all, b[:n])
		b = b[min((n+3)&^3, len(b)):]
	}
	return all, nil
}

// entrySize is the length of the entry that begins with e.
func entrySize(e []byte) int { return xattrEntry + int(e[0]) + int(le.Uint16(e[2:])) }

func appendAttribute(all []attribute, e []byte) []attribute {
	prefix, ok := prefixes[e[1]]
	n := int(e[0])
	name := string(e[xattrEntry : xattrEntry+n])
	whole := e[1] == 2 || e[1] == 3
	if !ok || whole != (n == 0) || len(prefix)+n > maxName {
		return all
	}
	return append(all, attribute{prefix + name, e[xattrEntry+n:]})
}

// Getxattr implements vfs.Xattrer.
func (i *inode) Getxattr(_ vfs.Caller, name string) ([]byte, error) {
	all, err := i.fs.v.attributes(&i.a)
	if err != nil {
		return nil, err
	}
	for _, x := range all {
		if x.name == name {
			return slices.Clone(x.value), nil
		}
	}
	return nil, unix.ENODATA
}

// Listxattr implements vfs.Xattrer.
func (i *inode) Listxattr(vfs.Caller) ([]string, error) {
	all, err := i.fs.v.attributes(&i.a)
	if err != nil {
		return nil, err
	}
	var names []string
	total := 0
	for _, x := range all {
		if total += len(x.name) + 1; total > maxXattr {
			return nil, unix.E2BIG
		}
		names = append(names, x.name)
	}
	return names, nil
}

// Setxattr implements vfs.Xattrer.
func (i *inode) Setxattr(vfs.Caller, string, []byte, uint32) error { return unix.EROFS }

// Removexattr implements vfs.Xattrer.
func (i *inode) Removexattr(vfs.Caller, string) error { return unix.EROFS }
