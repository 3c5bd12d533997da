package vfs

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Watcher receives inotify(7) events. It must not block nor call into vfs.
type Watcher interface {
	// Event reports mask (unix.IN_*) on the watched inode; name is the
	// entry concerned when that is a directory, cookie joins the two halves
	// of a rename.
	Event(mask, cookie uint32, name string)
}

// Watch is one registration of a Watcher on an inode.
type Watch struct {
	watcher Watcher       `save:"rebuilt"`
	path    Path          `save:"rec"` // references: the inode must stay the one that walks find
	mask    atomic.Uint32 `save:"rec"`
}

// watches is the set of all watches. Nothing but the counter is looked at
// while it is empty.
var watches struct {
	n  atomic.Int32
	mu sync.RWMutex
	// mu guards:
	at map[Inode][]*Watch
}

var renameCookie atomic.Uint32

// RenameCookie returns a new cookie that joins the two halves of a rename.
func RenameCookie() uint32 { return renameCookie.Add(1) }

// OutsideWatcher is implemented by inodes that others than this kernel change
// (files of the host): it is told of each watch that begins or ends, and reports
// changes from outside with NotifyOutside.
type OutsideWatcher interface {
	WatchOutside(on bool)
}

// NotifyOutside reports an event on inode that the file system has learnt of.
func NotifyOutside(inode Inode, mask, cookie uint32, name string) {
	if watches.n.Load() != 0 {
		notifyInode(inode, mask, cookie, name)
	}
}

// AddWatch registers w on the inode at p for the events of mask.
func AddWatch(p Path, mask uint32, w Watcher) *Watch {
	p.IncRef()
	x := &Watch{watcher: w, path: p}
	x.mask.Store(mask)
	watches.mu.Lock()
	if watches.at == nil {
		watches.at = make(map[Inode][]*Watch)
	}
	watches.at[p.Inode()] = append(watches.at[p.Inode()], x)
	watches.n.Add(1)
	p.Mount.watched.Add(1)
	watches.mu.Unlock()
	if o, ok := p.Inode().(OutsideWatcher); ok {
		o.WatchOutside(true)
	}
	return x
}

// Path borrows the path that was given to AddWatch.
func (x *Watch) Path() Path { return x.path }

// Mask and SetMask give the events that x is for.
func (x *Watch) Mask() uint32 { return x.mask.Load() }

// SetMask replaces the events that x is for.
func (x *Watch) SetMask(m uint32) { x.mask.Store(m) }

// Remove ends the registration. It must not be called from Event.
func (x *Watch) Remove() {
	inode := x.path.Inode()
	watches.mu.Lock()
	list := watches.at[inode]
	found := false
	for i, o := range list {
		if o == x {
			list = append(list[:i:i], list[i+1:]...)
			found = true
			break
		}
	}
	if len(list) == 0 {
		delete(watches.at, inode)
	} else {
		watches.at[inode] = list
	}
	watches.mu.Unlock()
	if found {
		if o, ok := inode.(OutsideWatcher); ok {
			o.WatchOutside(false)
		}
		watches.n.Add(-1)
		x.path.Mount.watched.Add(-1)
		x.path.DecRef()
	}
}

// dropWatches ends the watches on m, which is not mounted any more.
func dropWatches(m *Mount) {
	if m.watched.Load() == 0 {
		return
	}
	var gone []*Watch
	watches.mu.RLock()
	for _, list := range watches.at {
		for _, x := range list {
			if x.path.Mount == m {
				gone = append(gone, x)
				x.watcher.Event(unix.IN_UNMOUNT, 0, "")
			}
		}
	}
	watches.mu.RUnlock()
	for _, x := range gone {
		x.Remove()
	}
}

func notifyInode(inode Inode, mask, cookie uint32, name string) {
	watches.mu.RLock()
	defer watches.mu.RUnlock()
	for _, x := range watches.at[inode] {
		if x.mask.Load()&mask&unix.IN_ALL_EVENTS != 0 || mask&(unix.IN_IGNORED|unix.IN_UNMOUNT) != 0 {
			x.watcher.Event(mask, cookie, name)
		}
	}
}

// notifyEntry reports an event on the entry name of dir.
func notifyEntry(dir *Dentry, mask, cookie uint32, name string, isDir bool) {
	if watches.n.Load() == 0 {
		return
	}
	if isDir {
		mask |= unix.IN_ISDIR
	}
	notifyInode(dir.inode, mask, cookie, name)
}

// notifySelf reports an event on d, to d and to its directory.
func notifySelf(d *Dentry, mask uint32) {
	if watches.n.Load() == 0 {
		return
	}
	if d.IsDir() {
		mask |= unix.IN_ISDIR
	}
	notifyInode(d.inode, mask, 0, "")
	if p := d.parentRef(); p != nil {
		notifyInode(p.inode, mask, 0, d.Name())
		p.DecRef()
	}
}

// notifyGone reports that d lost a name: IN_ATTRIB for the link count, and
// IN_DELETE_SELF when it was the last.
func notifyGone(c Caller, d *Dentry) {
	if watches.n.Load() == 0 {
		return
	}
	mask := uint32(unix.IN_ATTRIB)
	if st, err := d.inode.Stat(c, unix.STATX_NLINK); err != nil || st.Nlink == 0 || d.IsDir() {
		mask = unix.IN_DELETE_SELF
	}
	notifyInode(d.inode, mask, 0, "")
}

func (f *File) notifyAccess(n int) {
	if n > 0 && watches.n.Load() != 0 {
		notifySelf(f.path.Dentry, unix.IN_ACCESS)
	}
}

func (f *File) notifyModify(n int) {
	if n > 0 && watches.n.Load() != 0 {
		notifySelf(f.path.Dentry, unix.IN_MODIFY)
	}
}

func (f *File) notifyOpen() {
	if watches.n.Load() != 0 && f.mode&filePath == 0 {
		notifySelf(f.path.Dentry, unix.IN_OPEN)
	}
}

func (f *File) notifyClose() {
	if watches.n.Load() == 0 || f.mode&filePath != 0 {
		return
	}
	if f.mode&fileWrite != 0 {
		notifySelf(f.path.Dentry, unix.IN_CLOSE_WRITE)
	} else {
		notifySelf(f.path.Dentry, unix.IN_CLOSE_NOWRITE)
	}
}
