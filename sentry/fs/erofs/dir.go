package erofs

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/vfs"
)

// dir is a directory. It implements vfs.Dir; nothing in it can be changed.
type dir struct{ *inode }

// Lookup implements vfs.Dir.
func (d *dir) Lookup(_ vfs.Caller, name string) (vfs.Inode, error) {
	nid, err := d.fs.v.lookup(&d.a, name)
	if err != nil {
		return nil, err
	}
	i, err := d.fs.get(nid)
	if err != nil {
		return nil, err
	}
	return i, nil
}

// Open implements vfs.Inode.
func (d *dir) Open(vfs.Caller, *vfs.Dentry, uint32) (vfs.FileOps, error) { return &dirFile{d}, nil }

// Create implements vfs.Dir.
func (d *dir) Create(vfs.Caller, string, vfs.CreateAttr) (vfs.Inode, error) { return nil, unix.EROFS }

// Mkdir implements vfs.Dir.
func (d *dir) Mkdir(vfs.Caller, string, vfs.CreateAttr) (vfs.Inode, error) { return nil, unix.EROFS }

// Mknod implements vfs.Dir.
func (d *dir) Mknod(vfs.Caller, string, vfs.CreateAttr, uint64) (vfs.Inode, error) {
	return nil, unix.EROFS
}

// Symlink implements vfs.Dir.
func (d *dir) Symlink(vfs.Caller, string, string, vfs.CreateAttr) (vfs.Inode, error) {
	return nil, unix.EROFS
}

// Link implements vfs.Dir.
func (d *dir) Link(vfs.Caller, string, vfs.Inode) error { return unix.EROFS }

// Unlink implements vfs.Dir.
func (d *dir) Unlink(vfs.Caller, string, vfs.Inode) error { return unix.EROFS }

// Rmdir implements vfs.Dir.
func (d *dir) Rmdir(vfs.Caller, string, vfs.Inode) error { return unix.EROFS }

// Rename implements vfs.Dir.
func (d *dir) Rename(vfs.Caller, string, vfs.Inode, vfs.Dir, string, vfs.Inode, uint32) error {
	return unix.EROFS
}

// dirFile is an open directory.
type dirFile struct {
	d *dir `save:"rebuilt"`
}

// Release implements vfs.FileOps.
func (f *dirFile) Release() {}

// Ready implements vfs.FileOps.
func (f *dirFile) Ready(mask waitq.Mask) waitq.Mask { return mask & (waitq.In | waitq.Out) }

// Fsync implements vfs.Syncer.
func (f *dirFile) Fsync(vfs.Caller, bool) error { return nil }

// ReadDir implements vfs.DirReader. The image has "." and ".." among the names.
func (f *dirFile) ReadDir(_ vfs.Caller, _ *vfs.File, pos int64, emit func(vfs.Dirent) bool) error {
	return f.d.fs.v.list(&f.d.a, pos, func(e entry, next int64) bool {
		return emit(vfs.Dirent{Name: e.name, Ino: e.nid, Type: e.typ, Next: next})
	})
}
