package vfs

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"runsc/pkg/ref"
	"runsc/pkg/waitq"
	"runsc/sentry/mem"
)

var fileKind = ref.NewKind("vfs.file")

// Bits of File.mode.
const (
	fileRead = 1 << iota
	fileWrite
	filePath      // O_PATH
	fileHasOffset // regular files, directories, block devices
	fileRegular
	fileWriter // counted on its mount as a writer
)

// statusMask has the flags that F_SETFL can change.
const statusMask = unix.O_APPEND | unix.O_NONBLOCK | unix.O_ASYNC | unix.O_DIRECT | unix.O_NOATIME

// File is an open file description (Linux's struct file).
type File struct {
	refs ref.Count `save:"rebuilt"`

	// immutable after newFile:
	ops      FileOps  `save:"rec"`
	path     Path     `save:"rec"` // references
	mode     uint32   `save:"rebuilt"`
	reader   Reader   `save:"rebuilt"`
	writer   Writer   `save:"rebuilt"`
	readerAt ReaderAt `save:"rebuilt"`
	writerAt WriterAt `save:"rebuilt"`

	flags atomic.Uint32 `save:"rec"` // open(2) flags without the creation flags

	// offMu may be slept under: it serializes reads, writes and seeks that
	// use the offset.
	offMu sync.Mutex   `save:"none: not held at a stop"`
	off   atomic.Int64 `save:"rec"` // written with offMu held

	mu sync.Mutex `save:"none: not held at a stop"`
	// mu guards:
	owner    FileOwner     `save:"rec"`
	watchers []FileWatcher `save:"rebuilt"`
	locked   bool          `save:"rebuilt"` // may hold flock or OFD locks
	program  bool          `save:"rec"`     // opened to be run: not to be written meanwhile
	async    *asyncState   `save:"rec"`     // O_ASYNC is at work
	dnotify  *dnotify      `save:"rec"`
	hint     uint64        `save:"none: nothing depends on it"` // F_SET_RW_HINT
}

// FileOwner is who gets SIGIO (F_SETOWN_EX), and the credentials it was set with.
type FileOwner struct {
	Type      int32  `save:"rec"` // unix.F_OWNER_*
	PID       int32  `save:"rec"`
	Signal    int32  `save:"rec"` // F_SETSIG
	UID, EUID uint32 `save:"rec"`
	// Target is who that is; nil sends nothing.
	Target SignalTarget `save:"rebuilt"`
}

// NewFile returns a file over ops, which it takes over as well as the
// reference to path; flags are open(2)'s.
func NewFile(path Path, ops FileOps, flags uint32) *File {
	f := &File{ops: ops, path: path}
	f.refs.Init()
	f.flags.Store(flags &^ uint32(unix.O_CREAT|unix.O_EXCL|unix.O_NOCTTY|unix.O_TRUNC|unix.O_CLOEXEC))
	switch flags & unix.O_ACCMODE {
	case unix.O_RDONLY:
		f.mode = fileRead
	case unix.O_WRONLY:
		f.mode = fileWrite
	case unix.O_RDWR:
		f.mode = fileRead | fileWrite
	}
	if flags&unix.O_PATH != 0 {
		f.mode = filePath
	}
	f.reader, _ = ops.(Reader)
	f.writer, _ = ops.(Writer)
	f.readerAt, _ = ops.(ReaderAt)
	f.writerAt, _ = ops.(WriterAt)
	if f.readerAt != nil || f.writerAt != nil {
		f.mode |= fileHasOffset
	} else if _, ok := ops.(DirReader); ok {
		f.mode |= fileHasOffset
	} else if _, ok := ops.(Seeker); ok {
		f.mode |= fileHasOffset
	}
	fileKind.Born()
	return f
}

// pathOps are the operations of an O_PATH file: none.
type pathOps struct{}

func (pathOps) Release()                         {}
func (pathOps) Ready(mask waitq.Mask) waitq.Mask { return mask & waitq.Nval }

// IncRef takes a reference; the caller holds one.
func (f *File) IncRef() { f.refs.Inc() }

// TryIncRef takes a reference unless the file is being released.
func (f *File) TryIncRef() bool { return f.refs.TryInc() }

// Refs is the number of references, for finding sockets that only messages in
// flight refer to (unix(7)); it may change at any time.
func (f *File) Refs() int { return int(f.refs.Load()) }

// DecRef drops a reference; the last one closes the description.
func (f *File) DecRef() {
	if f.refs.Dec() {
		f.release()
	}
}

func (f *File) release() {
	f.mu.Lock()
	watchers, locked := f.watchers, f.locked
	f.watchers = nil
	f.mu.Unlock()
	for _, w := range watchers {
		w.FileReleased()
	}
	if locked {
		f.releaseLocks()
	}
	f.notifyClose()
	f.SetAsync(0, false)
	f.endNotify()
	f.endLease()
	f.AllowWrite()
	f.ops.Release()
	if f.mode&fileWriter != 0 {
		f.path.Mount.writers.Add(-1)
		endWrite(f.Inode())
	}
	f.path.DecRef()
	fileKind.Died()
}

// Watch registers w to be told when f is released.
func (f *File) Watch(w FileWatcher) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watchers = append(f.watchers, w)
}

// Unwatch undoes one Watch; it does nothing if w is not registered.
func (f *File) Unwatch(w FileWatcher) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, o := range f.watchers {
		if o == w {
			f.watchers = append(f.watchers[:i:i], f.watchers[i+1:]...)
			return
		}
	}
}

// Ops borrows the file system's part.
func (f *File) Ops() FileOps { return f.ops }

// Path borrows the path that was opened.
func (f *File) Path() Path { return f.path }

// Inode borrows the inode.
func (f *File) Inode() Inode { return f.path.Dentry.inode }

// Readable tells whether f was opened for reading.
func (f *File) Readable() bool { return f.mode&fileRead != 0 }

// Writable tells whether f was opened for writing.
func (f *File) Writable() bool { return f.mode&fileWrite != 0 }

// IsPath tells whether f was opened with O_PATH.
func (f *File) IsPath() bool { return f.mode&filePath != 0 }

// StatusFlags are the access mode and flags that F_GETFL reports.
func (f *File) StatusFlags() uint32 { return f.flags.Load() }

// SetStatusFlags changes the flags that F_SETFL can change.
func (f *File) SetStatusFlags(c Caller, flags uint32) error {
	if f.IsPath() {
		return unix.EBADF
	}
	if flags&unix.O_NOATIME != 0 && f.flags.Load()&unix.O_NOATIME == 0 {
		st, err := f.Inode().Stat(c, 0)
		if err != nil {
			return err
		}
		if !ownerOr(c.Cred(), &st, unix.CAP_FOWNER) {
			return unix.EPERM
		}
	}
	for {
		old := f.flags.Load()
		if f.flags.CompareAndSwap(old, old&^statusMask|flags&statusMask) {
			return nil
		}
	}
}

// NonBlocking tells whether O_NONBLOCK is set.
func (f *File) NonBlocking() bool { return f.flags.Load()&unix.O_NONBLOCK != 0 }

// Owner returns who gets SIGIO.
func (f *File) Owner() FileOwner {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.owner
}

// SetOwner sets who gets SIGIO.
func (f *File) SetOwner(o FileOwner) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.owner = o
}

// Ready returns those events of mask that hold now.
func (f *File) Ready(mask waitq.Mask) waitq.Mask { return f.ops.Ready(mask) }

// Register and Unregister add a listener to the file's wait queue. A file that
// is never not ready has none: Register tells whether it does.
func (f *File) Register(e *waitq.Entry, mask waitq.Mask) bool {
	w, ok := f.ops.(Waitable)
	if ok {
		w.Queue().Register(e, mask)
	}
	return ok
}

// Unregister undoes Register.
func (f *File) Unregister(e *waitq.Entry) {
	if w, ok := f.ops.(Waitable); ok {
		w.Queue().Unregister(e)
	}
}

// AtimeDue tells a file system that keeps its own times whether a read through
// f now has to set the access time: O_NOATIME and the mount's noatime,
// nodiratime, relatime flags decide (Linux's touch_atime).
func (f *File) AtimeDue(atime, mtime, ctime Timespec, now int64, dir bool) bool {
	if f == nil || f.flags.Load()&unix.O_NOATIME != 0 {
		return false
	}
	return f.path.Mount.atimeDue(atime, mtime, ctime, now, dir)
}

func (m *Mount) atimeDue(atime, mtime, ctime Timespec, now int64, dir bool) bool {
	if m == nil {
		return true
	}
	flags := m.Flags()
	if flags&unix.MS_NOATIME != 0 || dir && flags&unix.MS_NODIRATIME != 0 || m.ReadOnly() {
		return false
	}
	if flags&unix.MS_RELATIME == 0 {
		return true
	}
	const day = 24 * 60 * 60
	return !atime.After(mtime) || !atime.After(ctime) || now/1e9-atime.Sec >= day
}

// After tells whether t is later than o.
func (t Timespec) After(o Timespec) bool {
	return t.Sec > o.Sec || t.Sec == o.Sec && t.Nsec > o.Nsec
}

// TimespecOf converts nanoseconds since the epoch.
func TimespecOf(ns int64) Timespec {
	sec := ns / 1e9
	if ns%1e9 < 0 {
		sec--
	}
	return Timespec{sec, uint32(ns - sec*1e9)}
}

// Nanoseconds converts back, saturating.
func (t Timespec) Nanoseconds() int64 {
	const maxSec = (1<<63-1)/1_000_000_000 - 1
	switch {
	case t.Sec > maxSec:
		return 1<<63 - 1
	case t.Sec < -maxSec:
		return -1 << 63
	}
	return t.Sec*1e9 + int64(t.Nsec)
}

// Ioctl implements what ioctl(2) asks of the file itself.
func (f *File) Ioctl(c Caller, m mem.Memory, cmd uint32, arg uint64) (uintptr, error) {
	if f.IsPath() {
		return 0, unix.EBADF
	}
	if i, ok := f.ops.(Ioctler); ok {
		return i.Ioctl(c, f, m, cmd, arg)
	}
	return 0, unix.ENOTTY
}

// Mappable returns what mmap(2) maps; ENODEV if the file cannot be mapped.
func (f *File) Mappable(c Caller) (mem.Mappable, error) {
	if f.IsPath() {
		return nil, unix.EBADF
	}
	if m, ok := f.ops.(Mapper); ok {
		return m.Mappable(c, f)
	}
	return nil, unix.ENODEV
}

// WriteHint and SetWriteHint are the hint of F_GET_RW_HINT and F_SET_RW_HINT on
// how long data live; it is remembered.
func (f *File) WriteHint() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hint
}

// SetWriteHint sets it.
func (f *File) SetWriteHint(h uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hint = h
}
