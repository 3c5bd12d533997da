package vfs

import (
	"sync"

	"golang.org/x/sys/unix"

	"runsc/pkg/abi/linux"
)

// dnotify is what fcntl(F_NOTIFY) asked to hear of a directory.
type dnotify struct {
	file  *File
	fd    int32
	watch *Watch

	mu sync.Mutex
	// mu guards:
	mask   uint32 // DN_*
	cookie uint32 // of the last name that went, to find renames within
	spent  bool
}

// dnotifyEvents are the events of inotify for those of dnotify.
var dnotifyEvents = []struct{ dn, in uint32 }{
	{linux.DN_ACCESS, unix.IN_ACCESS}, {linux.DN_MODIFY, unix.IN_MODIFY}, {linux.DN_ATTRIB, unix.IN_ATTRIB},
	{linux.DN_CREATE, unix.IN_CREATE | unix.IN_MOVED_TO}, {linux.DN_DELETE, unix.IN_DELETE | unix.IN_MOVED_FROM},
	{linux.DN_RENAME, unix.IN_MOVED_FROM | unix.IN_MOVED_TO},
}

// Notify implements fcntl(F_NOTIFY) on the directory that f is known as fd of:
// events are added to those of earlier calls, 0 ends it.
func (f *File) Notify(fd int32, mask uint32) error {
	if mask&^uint32(linux.DN_MULTISHOT) == 0 {
		f.endNotify()
		return nil
	}
	if !f.path.Dentry.IsDir() {
		return unix.ENOTDIR
	}
	f.mu.Lock()
	n := f.dnotify
	if n == nil {
		n = &dnotify{file: f, fd: fd}
		f.dnotify = n
	}
	f.mu.Unlock()
	n.mu.Lock()
	if n.spent {
		n.mask, n.spent = 0, false
	}
	n.mask |= mask
	in := uint32(0)
	for _, e := range dnotifyEvents {
		if n.mask&e.dn != 0 {
			in |= e.in
		}
	}
	watch := n.watch
	n.mu.Unlock()
	if watch != nil {
		watch.SetMask(in)
		return nil
	}
	watch = AddWatch(f.path, in, n)
	n.mu.Lock()
	n.watch = watch
	n.mu.Unlock()
	return nil
}

// Notified is what Notify has set, DN_* bits.
func (f *File) notified() (fd int32, mask uint32) {
	f.mu.Lock()
	n := f.dnotify
	f.mu.Unlock()
	if n == nil {
		return 0, 0
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.spent {
		return 0, 0
	}
	return n.fd, n.mask
}

// endNotify undoes Notify.
func (f *File) endNotify() {
	f.mu.Lock()
	n := f.dnotify
	f.dnotify = nil
	f.mu.Unlock()
	if n == nil {
		return
	}
	n.mu.Lock()
	watch := n.watch
	n.watch, n.spent = nil, true
	n.mu.Unlock()
	if watch != nil {
		watch.Remove()
	}
}

// Event implements Watcher: what happens to the directory itself does not
// count.
func (n *dnotify) Event(mask, cookie uint32, name string) {
	if name == "" {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	hit := uint32(0)
	for _, e := range dnotifyEvents {
		if e.dn != linux.DN_RENAME && mask&e.in != 0 {
			hit |= e.dn
		}
	}
	switch {
	case mask&unix.IN_MOVED_FROM != 0:
		n.cookie = cookie
	case mask&unix.IN_MOVED_TO != 0 && cookie == n.cookie:
		hit |= linux.DN_RENAME
	}
	if n.spent || hit&n.mask == 0 {
		return
	}
	n.spent = n.mask&linux.DN_MULTISHOT == 0
	postIO(n.file.Owner(), n.fd, pollMsg)
}
