package vfs

import (
	"sort"
	"sync"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
)

// fileKey names a file for locking: what stat(2) tells, so that all ways to a
// file meet, also after an overlay copied it up.
type fileKey struct {
	dev, ino uint64
}

// lockKind tells apart flock(2) locks from record locks; the two do not see
// each other.
type lockKind uint8

const (
	lockFlock lockKind = iota
	lockRecord
)

// fileLock is one lock held. owner is the *File for flock and OFD locks, the
// *FDTable for POSIX locks.
type fileLock struct {
	kind       lockKind `save:"rec"`
	owner      any      `save:"rec"`
	exclusive  bool     `save:"rec"`
	start, end int64    `save:"rec"` // [start, end), end is maxLockEnd for "to the end of file"
	pid        int32    `save:"rec"` // for F_GETLK; -1 for OFD locks
}

// maxLockEnd is the end of a lock with l_len 0.
const maxLockEnd = 1<<63 - 1

// lockList is the locks of one file.
type lockList struct {
	held  []fileLock // record locks of one owner are sorted, disjoint
	queue waitq.Queue
	users int // waiters; the list goes when it has neither
}

// locks is every lock there is: few programs lock, so one mutex will do.
var locks = struct {
	mu sync.Mutex
	// mu guards:
	at map[fileKey]*lockList
	// waiting says whose POSIX lock an owner waits for, to find deadlocks.
	waiting map[any]lockWait
}{at: make(map[fileKey]*lockList), waiting: make(map[any]lockWait)}

type lockWait struct {
	key  fileKey
	want fileLock
}

// FileLock describes a record lock in absolute terms, as struct flock does
// after l_whence is dealt with.
type FileLock struct {
	Type  int16 // unix.F_RDLCK, F_WRLCK, F_UNLCK
	Start int64
	Len   int64 // 0: to the end of file
	PID   int32
}

func (f *File) lockKey(c Caller) (fileKey, error) {
	st, err := f.Inode().Stat(c, unix.STATX_INO)
	return fileKey{st.Dev, st.Ino}, err
}

func (l *lockList) conflict(want *fileLock) *fileLock {
	for i := range l.held {
		h := &l.held[i]
		if h.kind == want.kind && h.owner != want.owner && (h.exclusive || want.exclusive) &&
			h.start < want.end && want.start < h.end {
			return h
		}
	}
	return nil
}

// Flock implements flock(2); op is LOCK_SH, LOCK_EX or LOCK_UN, perhaps with
// LOCK_NB.
func (f *File) Flock(c Caller, op int) error {
	if f.IsPath() {
		return unix.EBADF
	}
	want := fileLock{kind: lockFlock, owner: f, end: maxLockEnd}
	switch op &^ unix.LOCK_NB {
	case unix.LOCK_UN:
		key, err := f.lockKey(c)
		if err != nil {
			return err
		}
		unlockRange(key, &want)
		return nil
	case unix.LOCK_SH:
	case unix.LOCK_EX:
		want.exclusive = true
	default:
		return unix.EINVAL
	}
	key, err := f.lockKey(c)
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.locked = true
	f.mu.Unlock()
	// A conversion is not atomic: the old lock goes first (flock(2)).
	return acquire(c, key, want, op&unix.LOCK_NB == 0)
}

// SetLock implements fcntl(2)'s F_SETLK and F_SETLKW (wait) for the POSIX
// locks of table owner, and with a nil owner those of open file descriptions
// (F_OFD_SETLK). The system call has turned l_whence into an absolute start.
func (f *File) SetLock(c Caller, owner *FDTable, l FileLock, wait bool) error {
	want, err := f.recordLock(c, owner, l)
	if err != nil {
		return err
	}
	switch l.Type {
	case unix.F_RDLCK:
		if f.mode&fileRead == 0 {
			return unix.EBADF
		}
	case unix.F_WRLCK:
		if f.mode&fileWrite == 0 {
			return unix.EBADF
		}
	}
	key, err := f.lockKey(c)
	if err != nil {
		return err
	}
	if l.Type == unix.F_UNLCK {
		unlockRange(key, &want)
		return nil
	}
	if owner != nil {
		owner.mu.Lock()
		owner.posix = true
		owner.mu.Unlock()
	} else {
		f.mu.Lock()
		f.locked = true
		f.mu.Unlock()
	}
	return acquire(c, key, want, wait)
}

// GetLock implements F_GETLK and F_OFD_GETLK: the lock that is in the way, or
// l with type F_UNLCK.
func (f *File) GetLock(c Caller, owner *FDTable, l FileLock) (FileLock, error) {
	if l.Type == unix.F_UNLCK {
		return l, unix.EINVAL
	}
	want, err := f.recordLock(c, owner, l)
	if err != nil {
		return l, err
	}
	key, err := f.lockKey(c)
	if err != nil {
		return l, err
	}
	locks.mu.Lock()
	defer locks.mu.Unlock()
	if list := locks.at[key]; list != nil {
		if h := list.conflict(&want); h != nil {
			return h.describe(), nil
		}
	}
	l.Type = unix.F_UNLCK
	return l, nil
}

func (h *fileLock) describe() FileLock {
	l := FileLock{Type: unix.F_RDLCK, Start: h.start, PID: h.pid}
	if h.exclusive {
		l.Type = unix.F_WRLCK
	}
	if h.end != maxLockEnd {
		l.Len = h.end - h.start
	}
	return l
}

func (f *File) recordLock(c Caller, owner *FDTable, l FileLock) (fileLock, error) {
	if f.IsPath() {
		return fileLock{}, unix.EBADF
	}
	w := fileLock{kind: lockRecord, owner: any(f), pid: -1, exclusive: l.Type == unix.F_WRLCK, start: l.Start}
	if owner != nil {
		w.owner, w.pid = owner, c.TGID()
	}
	switch {
	case l.Type != unix.F_RDLCK && l.Type != unix.F_WRLCK && l.Type != unix.F_UNLCK:
		return w, unix.EINVAL
	case l.Start < 0:
		return w, unix.EINVAL
	case l.Len == 0:
		w.end = maxLockEnd
	case l.Len > 0:
		w.end = l.Start + l.Len
		if w.end < 0 {
			return w, unix.EOVERFLOW
		}
	default: // a negative length lies before the start (fcntl(2))
		w.start, w.end = l.Start+l.Len, l.Start
		if w.start < 0 {
			return w, unix.EINVAL
		}
	}
	return w, nil
}

// acquire takes a lock, waiting for it if wait is set. EAGAIN without, EDEADLK
// if POSIX locks would wait in a circle.
func acquire(c Caller, key fileKey, want fileLock, wait bool) error {
	locks.mu.Lock()
	list := locks.at[key]
	if list == nil {
		list = &lockList{}
		locks.at[key] = list
	}
	if want.kind == lockFlock && list.replaceLocked(&want) {
		list.queue.Notify(waitq.In)
	}
	if list.conflict(&want) == nil {
		list.setLocked(&want)
		locks.mu.Unlock()
		return nil
	}
	if !wait {
		list.putLocked(key)
		locks.mu.Unlock()
		return unix.EAGAIN
	}
	list.users++
	locks.mu.Unlock()
	return list.wait(c, key, want)
}

// wait is the slow half of acquire.
func (l *lockList) wait(c Caller, key fileKey, want fileLock) error {
	e := waitq.Entry{Waiter: c.Waiter()}
	l.queue.Register(&e, waitq.In)
	defer l.queue.Unregister(&e)
	_, posix := want.owner.(*FDTable)
	for {
		locks.mu.Lock()
		h := l.conflict(&want)
		if h == nil {
			l.setLocked(&want)
		}
		deadlock := h != nil && posix && circularLocked(want.owner, h.owner)
		if h == nil || deadlock {
			l.endWaitLocked(key, &want)
			locks.mu.Unlock()
			if deadlock {
				return unix.EDEADLK
			}
			return nil
		}
		locks.waiting[want.owner] = lockWait{key, want}
		locks.mu.Unlock()
		if err := c.Block(e.Waiter, 0); err != nil {
			locks.mu.Lock()
			l.endWaitLocked(key, &want)
			locks.mu.Unlock()
			return err
		}
	}
}

func (l *lockList) endWaitLocked(key fileKey, want *fileLock) {
	delete(locks.waiting, want.owner)
	l.users--
	l.putLocked(key)
}

// circularLocked tells whether holder waits, perhaps through others, for owner.
func circularLocked(owner, holder any) bool {
	for range len(locks.waiting) + 1 {
		if holder == owner {
			return true
		}
		w, ok := locks.waiting[holder]
		if !ok {
			return false
		}
		l := locks.at[w.key]
		if l == nil {
			return false
		}
		h := l.conflict(&w.want)
		if h == nil {
			return false
		}
		holder = h.owner
	}
	return false
}

func (l *lockList) putLocked(key fileKey) {
	if len(l.held) == 0 && l.users == 0 && locks.at[key] == l {
		delete(locks.at, key)
	}
}

// replaceLocked drops owner's flock of the other type before a conversion.
func (l *lockList) replaceLocked(want *fileLock) bool {
	for i := range l.held {
		if h := &l.held[i]; h.kind == lockFlock && h.owner == want.owner && h.exclusive != want.exclusive {
			l.held = append(l.held[:i], l.held[i+1:]...)
			return true
		}
	}
	return false
}

// setLocked enters want, which conflicts with nothing, over what its owner
// holds already in the range, and joins it with equal neighbours.
func (l *lockList) setLocked(want *fileLock) {
	shrunk := l.clearLocked(want)
	n := *want
	kept := l.held[:0]
	for _, h := range l.held {
		if h.kind == n.kind && h.owner == n.owner && h.exclusive == n.exclusive &&
			h.start <= n.end && n.start <= h.end {
			n.start, n.end = min(n.start, h.start), max(n.end, h.end)
			continue
		}
		kept = append(kept, h)
	}
	l.held = append(kept, n)
	sort.Slice(l.held, func(i, j int) bool { return l.held[i].start < l.held[j].start })
	if shrunk {
		l.queue.Notify(waitq.In) // an exclusive lock may have become a shared one
	}
}

// clearLocked removes the range of u from its owner's locks and tells whether
// that changed anything.
func (l *lockList) clearLocked(u *fileLock) bool {
	changed := false
	var out []fileLock
	for _, h := range l.held {
		if h.kind != u.kind || h.owner != u.owner || h.end <= u.start || u.end <= h.start {
			out = append(out, h)
			continue
		}
		changed = true
		if h.start < u.start {
			left := h
			left.end = u.start
			out = append(out, left)
		}
		if u.end < h.end {
			right := h
			right.start = u.end
			out = append(out, right)
		}
	}
	l.held = out
	return changed
}

func unlockRange(key fileKey, u *fileLock) {
	locks.mu.Lock()
	defer locks.mu.Unlock()
	l := locks.at[key]
	if l == nil {
		return
	}
	if l.clearLocked(u) {
		l.queue.Notify(waitq.In)
	}
	l.putLocked(key)
}

// releaseOwner drops every lock of owner on the file of that key, or on any
// file when all is set.
func releaseOwner(owner any, match func(fileKey) bool) {
	locks.mu.Lock()
	defer locks.mu.Unlock()
	for key, l := range locks.at {
		if match != nil && !match(key) {
			continue
		}
		kept := l.held[:0]
		for _, h := range l.held {
			if h.owner != owner {
				kept = append(kept, h)
			}
		}
		if len(kept) != len(l.held) {
			clear(l.held[len(kept):])
			l.held = kept
			l.queue.Notify(waitq.In)
		}
		l.putLocked(key)
	}
}

// releaseLocks drops the flock and OFD locks of f at its last close.
func (f *File) releaseLocks() { releaseOwner(f, nil) }

// releasePosix drops t's POSIX locks on the file of f.
func (f *File) releasePosix(c Caller, t *FDTable) {
	st, err := f.Inode().Stat(c, unix.STATX_INO)
	if err != nil {
		return
	}
	key := fileKey{st.Dev, st.Ino}
	releaseOwner(t, func(k fileKey) bool { return k == key })
}

// LockInfo is a line of /proc/locks.
type LockInfo struct {
	Flock, OFD bool
	Exclusive  bool
	PID        int32
	Dev, Ino   uint64
	Start, End int64 // End is 1<<63-1 for "EOF"; inclusive otherwise
}

// Locks returns all file locks, for /proc/locks.
func Locks() []LockInfo {
	locks.mu.Lock()
	defer locks.mu.Unlock()
	var out []LockInfo
	for key, l := range locks.at {
		for _, h := range l.held {
			_, posix := h.owner.(*FDTable)
			end := h.end
			if end != maxLockEnd {
				end--
			}
			out = append(out, LockInfo{
				Flock: h.kind == lockFlock, OFD: h.kind == lockRecord && !posix, Exclusive: h.exclusive,
				PID: h.pid, Dev: key.dev, Ino: key.ino, Start: h.start, End: end,
			})
		}
	}
	sort.Slice(out, func(i, j int) bool {
		a, b := out[i], out[j]
		return a.Ino < b.Ino || a.Ino == b.Ino && a.Start < b.Start
	})
	return out
}
