package vfs

import (
	"fmt"
	"sort"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/image"
)

// saveLocks writes the locks of the descriptions and tables that were saved.
// Those of others end with them.
func (e *SaveEnv) saveLocks() error {
	held := heldLocks()
	if len(held) == 0 {
		return nil
	}
	rec := image.Locks{}
	for _, f := range e.files {
		for _, h := range held[f] {
			rec.Locks = append(rec.Locks, h.record(e.Known(f), 0))
		}
	}
	for _, t := range e.tables {
		list := held[t]
		if len(list) == 0 {
			continue
		}
		at := e.filesByKey(t)
		for _, h := range list {
			// A POSIX lock goes at the first close of a descriptor of the
			// file, so one is open; but it may be one with O_PATH now.
			if file := at[h.key]; file != 0 {
				rec.Locks = append(rec.Locks, h.record(file, e.Known(t)))
			}
		}
	}
	if len(rec.Locks) == 0 {
		return nil
	}
	rec.ID, _ = e.ID(&locks)
	return e.Put(image.KindLocks, &rec)
}

type keyedLock struct {
	key fileKey
	fileLock
}

// heldLocks returns all locks by owner.
func heldLocks() map[any][]keyedLock {
	locks.mu.Lock()
	defer locks.mu.Unlock()
	held := make(map[any][]keyedLock)
	for key, l := range locks.at {
		for _, h := range l.held {
			held[h.owner] = append(held[h.owner], keyedLock{key, h})
		}
	}
	for _, list := range held {
		sort.Slice(list, func(i, j int) bool {
			a, b := &list[i], &list[j]
			if a.key != b.key {
				return a.key.dev < b.key.dev || a.key.dev == b.key.dev && a.key.ino < b.key.ino
			}
			return a.start < b.start
		})
	}
	return held
}

// filesByKey returns the saved files of a table by what locks go by.
func (e *SaveEnv) filesByKey(t *FDTable) map[fileKey]image.ID {
	at := make(map[fileKey]image.ID)
	t.Each(func(_ int32, f *File, _ bool) {
		if f.IsPath() || f.path.Dentry.sb.anon != nil && f.mode&fileRegular == 0 {
			return
		}
		if key, err := f.lockKey(e.Caller); err == nil && at[key] == 0 {
			at[key] = e.Known(f)
		}
	})
	return at
}

func (h *keyedLock) record(file, table image.ID) image.Lock {
	return image.Lock{File: file, Table: table, Flock: h.kind == lockFlock, Exclusive: h.exclusive,
		Start: h.start, End: h.end, PID: h.pid, Dev: h.key.dev, Ino: h.key.ino}
}

// restoreLocks takes the locks of the image.
func (e *RestoreEnv) restoreLocks() error {
	for _, id := range e.IDs(image.KindLocks) {
		var rec image.Locks
		if err := e.Get(image.KindLocks, id, &rec); err != nil {
			return err
		}
		for i := range rec.Locks {
			if e.locked[i] {
				continue
			}
			if e.Needed != nil && !e.lockersHere(&rec.Locks[i]) {
				e.holdLock(&rec.Locks[i])
				continue
			}
			if e.locked == nil {
				e.locked = map[int]bool{}
			}
			e.locked[i] = true
			if err := e.restoreLock(&rec.Locks[i]); err != nil {
				return fmt.Errorf("lock %d of the image: %w", i, err)
			}
		}
	}
	return nil
}

// lockersHere tells whether what a lock belongs to was restored.
func (e *RestoreEnv) lockersHere(rec *image.Lock) bool {
	_, file := image.Object[*File](e.Restorer, rec.File)
	_, table := image.Object[*FDTable](e.Restorer, rec.Table)
	return file && (table || rec.Table == 0)
}

func (e *RestoreEnv) restoreLock(rec *image.Lock) error {
	f, ok := image.Object[*File](e.Restorer, rec.File)
	if !ok || f.IsPath() {
		return fmt.Errorf("file %d is not open", rec.File)
	}
	l := fileLock{kind: lockRecord, owner: f, exclusive: rec.Exclusive, start: rec.Start, end: rec.End, pid: rec.PID}
	if rec.Flock {
		l.kind = lockFlock
	}
	if l.start < 0 || l.end <= l.start {
		return unix.EINVAL
	}
	key, err := f.lockKey(e.Caller)
	if err != nil {
		return err
	}
	if rec.Table != 0 {
		t, ok := image.Object[*FDTable](e.Restorer, rec.Table)
		if !ok || rec.Flock {
			return fmt.Errorf("its owner %d is no table of descriptors", rec.Table)
		}
		l.owner = t
		t.mu.Lock()
		t.posix = true
		t.mu.Unlock()
	} else {
		f.mu.Lock()
		f.locked = true
		f.mu.Unlock()
	}
	locks.mu.Lock()
	defer locks.mu.Unlock()
	list := locks.at[key]
	if list == nil {
		list = &lockList{}
		locks.at[key] = list
	}
	if h := e.absentees[lockerOf(rec)]; h != nil {
		list.clearLocked(&fileLock{kind: l.kind, owner: h, start: l.start, end: l.end})
	}
	if list.conflict(&l) != nil {
		list.putLocked(key)
		return unix.EAGAIN
	}
	list.setLocked(&l)
	return nil
}

// absentee has the locks of an owner that a later stage brings.
type absentee struct{ keys []fileKey }

func lockerOf(rec *image.Lock) image.ID {
	if rec.Table != 0 {
		return rec.Table
	}
	return rec.File
}

// holdLock keeps a lock for its owner, if that is to come.
func (e *RestoreEnv) holdLock(rec *image.Lock) {
	id := lockerOf(rec)
	if !e.needed(id) || rec.Start < 0 || rec.End <= rec.Start {
		return
	}
	h := e.absentees[id]
	if h == nil {
		h = &absentee{}
		if e.absentees == nil {
			e.absentees = map[image.ID]*absentee{}
		}
		e.absentees[id] = h
	}
	l := fileLock{kind: lockRecord, owner: h, exclusive: rec.Exclusive, start: rec.Start, end: rec.End, pid: rec.PID}
	if rec.Flock {
		l.kind = lockFlock
	}
	key := fileKey{e.Dev(rec.Dev), rec.Ino}
	locks.mu.Lock()
	defer locks.mu.Unlock()
	list := locks.at[key]
	if list == nil {
		list = &lockList{}
		locks.at[key] = list
	}
	if list.conflict(&l) == nil {
		list.setLocked(&l)
		h.keys = append(h.keys, key)
	}
	list.putLocked(key)
}

// dropAbsentees gives back the locks of owners that are here or do not come.
func (e *RestoreEnv) dropAbsentees() {
	for id, h := range e.absentees {
		if e.needed(id) {
			continue
		}
		delete(e.absentees, id)
		locks.mu.Lock()
		for _, key := range h.keys {
			list := locks.at[key]
			if list == nil {
				continue
			}
			for _, kind := range []lockKind{lockFlock, lockRecord} {
				list.clearLocked(&fileLock{kind: kind, owner: h, end: maxLockEnd})
			}
			list.queue.Notify(waitq.In)
			list.putLocked(key)
		}
		locks.mu.Unlock()
	}
}
