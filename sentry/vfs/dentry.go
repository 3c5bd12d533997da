package vfs

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"runsc/pkg/ref"
)

var dentryKind = ref.NewKind("vfs.dentry")

// Bits of Dentry.state.
const (
	dentryUnhashed = 1 << iota // not in its parent's children any more
	dentryDead                 // a directory that was removed: nothing may be made in it
	dentryFreed                // the last reference is gone
	dentryQueued               // on the list of unused dentries
	dentryUsed                 // looked up since it was put on that list
	dentryLinkable             // made by O_TMPFILE without O_EXCL: may get a first name
)

// Dentry is a name in a directory, and the inode behind it. Dentries form the
// cache that walks go through; a Dentry holds a reference to its inode and to
// its parent. All of it is cache: a checkpoint keeps paths, not dentries.
//
// A count of zero can only become one under the parent's mu, by a lookup.
type Dentry struct {
	// immutable after newDentry:
	sb    *Superblock `save:"rec"`
	inode Inode       `save:"rec"`     // nil for a negative dentry
	dir   Dir         `save:"rebuilt"` // inode, if it is a directory
	link  Symlink     `save:"rebuilt"`
	perm  Permitter   `save:"rebuilt"`
	acl   ACLHolder   `save:"rebuilt"`
	acls  ACLReader   `save:"rebuilt"` // if acl is nil

	refs    atomic.Int64  `save:"rebuilt"`
	state   atomic.Uint32 `save:"rec"`
	mounted atomic.Int32  `save:"rebuilt"` // number of mounts on it, in all namespaces

	// dirMu serializes lookups in the file system and changes of this
	// directory. It may be slept under. Order: a parent before its child,
	// two others only under sb.renameMu.
	dirMu sync.Mutex `save:"none: not held at a stop"`

	mu sync.Mutex `save:"none: not held at a stop"`
	// mu guards:
	children map[string]*Dentry `save:"none: a cache"`

	// sb.nameMu guards, and for reading mu of the parent suffices:
	name   string                 `save:"rec"`
	parent atomic.Pointer[Dentry] `save:"rec"`

	// unused.mu guards:
	next, prev *Dentry `save:"none: a cache"`
}

// newDentry takes over the reference to inode and returns the dentry, not yet
// hashed, with one reference.
func newDentry(sb *Superblock, parent *Dentry, name string, inode Inode) *Dentry {
	d := &Dentry{sb: sb, inode: inode, name: name}
	if inode != nil {
		d.dir, _ = inode.(Dir)
		d.link, _ = inode.(Symlink)
		d.perm, _ = inode.(Permitter)
		if d.acl, _ = inode.(ACLHolder); d.acl == nil {
			d.acls, _ = inode.(ACLReader)
		}
	}
	d.refs.Store(1)
	if parent != nil {
		parent.IncRef()
		d.parent.Store(parent)
	}
	dentryKind.Born()
	return d
}

// Inode borrows the inode; it is nil for a negative dentry.
func (d *Dentry) Inode() Inode { return d.inode }

// Superblock is the one that d belongs to.
func (d *Dentry) Superblock() *Superblock { return d.sb }

// IsDir tells whether d is a directory.
func (d *Dentry) IsDir() bool { return d.dir != nil }

// Unlinked tells whether the name is gone from its directory.
func (d *Dentry) Unlinked() bool { return d.state.Load()&dentryUnhashed != 0 }

// Name is the last component of the path ("" for a root).
func (d *Dentry) Name() string {
	name, _ := d.nameAndParent()
	return name
}

func (d *Dentry) nameAndParent() (string, *Dentry) {
	d.sb.nameMu.RLock()
	defer d.sb.nameMu.RUnlock()
	return d.name, d.parent.Load()
}

// Parent returns a new reference to the directory that d is in, nil for a
// root.
func (d *Dentry) Parent() *Dentry { return d.parentRef() }

// parentRef returns a new reference to the parent, nil for a root.
func (d *Dentry) parentRef() *Dentry {
	d.sb.nameMu.RLock()
	defer d.sb.nameMu.RUnlock()
	p := d.parent.Load()
	if p != nil {
		p.IncRef()
	}
	return p
}

// IncRef takes a reference; the caller holds one.
func (d *Dentry) IncRef() { d.refs.Add(1) }

// DecRef drops a reference. At the last one a name that is still valid stays
// in the cache where its file system allows that.
func (d *Dentry) DecRef() {
	for d != nil {
		n := d.refs.Add(-1)
		if n > 0 {
			return
		}
		if n < 0 {
			panic("vfs: dentry count below zero")
		}
		if d.sb.policy != CacheNone && d.state.Load()&dentryUnhashed == 0 && d.parent.Load() != nil {
			unused.add(d)
			return
		}
		d = d.kill()
	}
}

// kill frees d if nothing refers to it and returns its parent, of which the
// caller is to drop the reference; nil if there was nothing to do.
func (d *Dentry) kill() *Dentry {
	p := d.lockParent()
	if d.refs.Load() != 0 || d.state.Load()&dentryFreed != 0 {
		if p != nil {
			p.mu.Unlock()
		}
		return nil
	}
	d.state.Or(dentryFreed | dentryUnhashed)
	if p != nil {
		if p.children[d.name] == d {
			delete(p.children, d.name)
		}
		p.mu.Unlock()
	}
	unused.remove(d)
	if d.inode != nil {
		d.inode.DecRef()
	}
	dentryKind.Died()
	return p
}

// lockParent locks the parent's mu and returns the parent, nil for a root.
func (d *Dentry) lockParent() *Dentry {
	for {
		p := d.parent.Load()
		if p == nil {
			return nil
		}
		p.mu.Lock()
		if d.parent.Load() == p {
			return p
		}
		p.mu.Unlock()
	}
}

// shrink frees what is unused below d.
func (d *Dentry) shrink() {
	d.mu.Lock()
	children := make([]*Dentry, 0, len(d.children))
	for _, ch := range d.children {
		children = append(children, ch)
	}
	d.mu.Unlock()
	for _, ch := range children {
		ch.shrink()
		if p := ch.kill(); p != nil {
			p.DecRef()
		}
	}
}

// cached returns a new reference to the child in the cache, nil if there is
// none.
func (d *Dentry) cached(name string) *Dentry {
	d.mu.Lock()
	ch := d.children[name]
	if ch != nil {
		ch.refs.Add(1)
	}
	d.mu.Unlock()
	return ch
}

// hash enters ch, whose parent is d, into the cache. dirMu of d is held.
func (d *Dentry) hash(ch *Dentry) {
	d.mu.Lock()
	if d.children == nil {
		d.children = make(map[string]*Dentry)
	}
	d.children[ch.name] = ch
	d.mu.Unlock()
}

// unhash takes d out of the cache: its name means something else from now on,
// or nothing.
func (d *Dentry) unhash() {
	p := d.lockParent()
	d.state.Or(dentryUnhashed)
	if p != nil {
		if p.children[d.name] == d {
			delete(p.children, d.name)
		}
		p.mu.Unlock()
	}
}

// positive drops a negative dentry, turning it into nil.
func positive(d *Dentry) *Dentry {
	if d != nil && d.inode == nil {
		d.DecRef()
		return nil
	}
	return d
}

// lookup returns a new reference to the child of that name, nil if there is
// none.
func (d *Dentry) lookup(c Caller, name string) (*Dentry, error) {
	if ch := d.cached(name); ch != nil {
		if d.sb.policy == CacheAll || d.sb.policy == CachePinned {
			return positive(ch), nil
		}
		if ok, err := d.stillValid(c, ch); ok || err != nil {
			return positiveOr(ch, err)
		}
		ch.invalidate()
		ch.DecRef()
	}
	d.dirMu.Lock()
	defer d.dirMu.Unlock()
	return d.lookupLocked(c, name)
}

// lookupLocked is lookup with dirMu held.
func (d *Dentry) lookupLocked(c Caller, name string) (*Dentry, error) {
	if d.state.Load()&dentryDead != 0 {
		return nil, nil
	}
	if ch := d.cached(name); ch != nil {
		ok, err := d.stillValid(c, ch)
		if ok || err != nil {
			return positiveOr(ch, err)
		}
		ch.invalidate()
		ch.DecRef()
	}
	inode, err := d.dir.Lookup(c, name)
	if err == unix.ENOENT {
		if d.sb.policy == CacheAll {
			ch := newDentry(d.sb, d, name, nil)
			d.hash(ch)
			ch.DecRef()
		}
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return d.instantiate(name, inode), nil
}

// instantiate enters a new child, taking over inode, and returns a new
// reference to it. dirMu is held and name is not in the cache, but for a
// negative dentry.
func (d *Dentry) instantiate(name string, inode Inode) *Dentry {
	if old := d.cached(name); old != nil {
		old.unhash()
		old.DecRef()
	}
	ch := newDentry(d.sb, d, name, inode)
	d.hash(ch)
	return ch
}

func positiveOr(ch *Dentry, err error) (*Dentry, error) {
	if err != nil {
		ch.DecRef()
		return nil, err
	}
	return positive(ch), nil
}

// stillValid asks the file system whether ch is still what its name means. A
// name that carries a mount always is.
func (d *Dentry) stillValid(c Caller, ch *Dentry) (bool, error) {
	if d.sb.policy == CacheAll || d.sb.policy == CachePinned || ch.mounted.Load() > 0 {
		return true, nil
	}
	r, ok := d.inode.(Revalidator)
	if !ok {
		return true, nil
	}
	name, _ := ch.nameAndParent()
	return r.Revalidate(c, name, ch.inode)
}

// invalidate unhashes d after its file system disowned it.
func (d *Dentry) invalidate() {
	d.unhash()
	d.shrink()
}

// isAncestorOf tells whether d is o or above it. sb.renameMu or sb.nameMu is
// held.
func (d *Dentry) isAncestorOf(o *Dentry) bool {
	for ; o != nil; o = o.parent.Load() {
		if o == d {
			return true
		}
	}
	return false
}
