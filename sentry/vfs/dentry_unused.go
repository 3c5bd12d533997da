package vfs

import "sync"

// DefaultDentryLimit is how many unused dentries are kept unless
// SetDentryLimit says otherwise.
const DefaultDentryLimit = 3072

// unusedList holds the dentries that nothing refers to, oldest last, as a
// clock with one second chance: a lookup only sets a bit.
type unusedList struct {
	mu sync.Mutex
	// mu guards:
	head, tail *Dentry
	n          int
	limit      int
}

var unused = unusedList{limit: DefaultDentryLimit}

// SetDentryLimit bounds the number of unused dentries of all file systems.
func SetDentryLimit(n int) {
	unused.mu.Lock()
	unused.limit = n
	unused.mu.Unlock()
	unused.evict()
}

// DropCaches frees every unused dentry.
func DropCaches() {
	unused.mu.Lock()
	limit := unused.limit
	unused.mu.Unlock()
	SetDentryLimit(0)
	SetDentryLimit(limit)
}

// add puts d, whose count fell to zero, on the list.
func (u *unusedList) add(d *Dentry) {
	if d.state.Load()&dentryQueued != 0 {
		d.state.Or(dentryUsed)
		return
	}
	u.mu.Lock()
	full := false
	if d.state.Load()&(dentryQueued|dentryFreed) == 0 {
		u.pushLocked(d)
		full = u.n > u.limit
	}
	u.mu.Unlock()
	if full {
		u.evict()
	}
}

func (u *unusedList) pushLocked(d *Dentry) {
	d.state.Or(dentryQueued)
	d.prev, d.next = nil, u.head
	if u.head != nil {
		u.head.prev = d
	} else {
		u.tail = d
	}
	u.head = d
	u.n++
}

func (u *unusedList) popLocked(d *Dentry) {
	if d.prev != nil {
		d.prev.next = d.next
	} else {
		u.head = d.next
	}
	if d.next != nil {
		d.next.prev = d.prev
	} else {
		u.tail = d.prev
	}
	d.prev, d.next = nil, nil
	d.state.And(^uint32(dentryQueued | dentryUsed))
	u.n--
}

// remove takes d, which is being freed, off the list.
func (u *unusedList) remove(d *Dentry) {
	if d.state.Load()&dentryQueued == 0 {
		return
	}
	u.mu.Lock()
	if d.state.Load()&dentryQueued != 0 {
		u.popLocked(d)
	}
	u.mu.Unlock()
}

// drop frees the dentries of a superblock that is going away.
func (u *unusedList) drop(sb *Superblock) {
	for {
		var found []*Dentry
		u.mu.Lock()
		for d := u.tail; d != nil; {
			prev := d.prev
			if d.sb == sb {
				u.popLocked(d)
				found = append(found, d)
			}
			d = prev
		}
		u.mu.Unlock()
		if len(found) == 0 {
			return
		}
		for _, d := range found {
			if p := d.kill(); p != nil {
				p.DecRef() // which may put it on the list
			}
		}
	}
}

// evict frees dentries until the list is within its limit.
func (u *unusedList) evict() {
	for {
		d := u.victim()
		if d == nil {
			return
		}
		if p := d.kill(); p != nil {
			p.DecRef()
		}
	}
}

// victim takes the next dentry to free off the list, nil if there are not too
// many.
func (u *unusedList) victim() *Dentry {
	u.mu.Lock()
	defer u.mu.Unlock()
	for u.n > u.limit {
		d := u.tail
		used := d.state.Load()&dentryUsed != 0
		u.popLocked(d)
		// A DecRef to zero that saw dentryQueued did not add d again, so
		// the count is looked at after the bit was cleared.
		if d.refs.Load() > 0 {
			continue
		}
		if used && u.limit > 0 {
			u.pushLocked(d)
			continue
		}
		return d
	}
	return nil
}
