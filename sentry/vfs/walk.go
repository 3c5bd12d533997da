package vfs

import (
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"runsc/sentry/cred"
)

// LookupFlags say how a path is resolved.
type LookupFlags uint32

const (
	// NoFollow: a final symlink is the result, not what it points to.
	NoFollow LookupFlags = 1 << iota
	// EmptyPath: an empty name means Dir itself (AT_EMPTY_PATH).
	EmptyPath
	// MustDir: ENOTDIR unless the result is a directory.
	MustDir
	// NoMagic, NoSymlinks, NoXdev, Beneath, InRoot, Cached are the RESOLVE_*
	// flags of openat2(2).
	ResolveNoMagic
	ResolveNoSymlinks
	ResolveNoXdev
	ResolveBeneath
	ResolveInRoot
)

// NoMagic is RESOLVE_NO_MAGICLINKS.
const NoMagic = ResolveNoMagic

const scoped = ResolveBeneath | ResolveInRoot

// Limits of path_resolution(7), limits.h.
const (
	maxSymlinks = 40
	nameMax     = 255
	pathMax     = 4096
)

// At is where a path operation starts and what it names: the arguments of an
// *at system call. Everything in it is borrowed.
type At struct {
	FS    *FSContext // nil: Dir is also the root
	Dir   Path       // zero: the working directory
	Name  string
	Flags LookupFlags
}

// Permission bits as in Linux's MAY_*.
const (
	MayExec  = 1
	MayWrite = 2
	MayRead  = 4
)

// renames counts directory moves; scoped walks that meet ".." check it.
var renames atomic.Uint64

// walker is one path resolution. cur and root are references.
type walker struct {
	c     Caller
	cr    *cred.Creds
	flags LookupFlags
	root  Path
	cur   Path
	rest  string // what is still to be walked
	last  string // after parent: the final component, "" if there is none
	slash bool   // last was followed by a slash
	links int
	seq   uint64
	ahead int        // steps that the last prefetch has covered
	pre   Prefetcher // told when the walk is over
}

// init sets w to the start of at. After it succeeded, done must be called.
func (w *walker) init(c Caller, at *At) error {
	if len(at.Name) >= pathMax {
		return unix.ENAMETOOLONG
	}
	if at.Name == "" && at.Flags&EmptyPath == 0 {
		return unix.ENOENT
	}
	w.c, w.cr, w.flags, w.rest = c, c.Cred(), at.Flags, at.Name
	absolute := strings.HasPrefix(at.Name, "/")
	if absolute && at.Flags&ResolveBeneath != 0 {
		return unix.EXDEV
	}
	switch {
	case at.FS == nil:
		w.root = at.Dir
		w.root.IncRef()
	case at.Flags&scoped == 0:
		w.root = at.FS.Root()
	}
	switch {
	case absolute && at.Flags&ResolveInRoot == 0:
		w.cur = w.root
		w.cur.IncRef()
	case at.Dir.Ok():
		w.cur = at.Dir
		w.cur.IncRef()
	default:
		w.cur = at.FS.Cwd()
	}
	if at.Flags&scoped != 0 {
		w.seq = renames.Load()
		w.root.DecRef()
		w.root = w.cur
		w.root.IncRef()
	}
	return nil
}

func (w *walker) done() {
	w.endPrefetch()
	w.cur.DecRef()
	w.root.DecRef()
}

// take returns cur as a new reference and ends the walk.
func (w *walker) take() Path {
	p := w.cur
	w.endPrefetch()
	w.root.DecRef()
	w.root, w.cur = Path{}, Path{}
	return p
}

// parent walks all components but the last, which it leaves in last. What was
// prefetched is not for what the caller does then: it looks again, under the
// lock of the directory.
func (w *walker) parent() error {
	err := w.parents()
	w.endPrefetch()
	return err
}

// parents is parent, for a caller who goes on to walk.
func (w *walker) parents() error {
	for {
		i := 0
		for i < len(w.rest) && w.rest[i] == '/' {
			i++
		}
		name := w.rest[i:]
		if name == "" {
			w.last, w.rest = "", ""
			return nil
		}
		end := strings.IndexByte(name, '/')
		if end < 0 {
			w.last, w.slash, w.rest = name, false, ""
			return nil
		}
		name, w.rest = name[:end], name[end:]
		if strings.Trim(w.rest, "/") == "" {
			w.last, w.slash, w.rest = name, true, ""
			return nil
		}
		if _, err := w.step(name, true); err != nil {
			return err
		}
	}
}

// lookup walks everything; cur is the result.
func (w *walker) lookup() error {
	for {
		if err := w.parents(); err != nil {
			return err
		}
		if w.last == "" {
			break
		}
		more, err := w.step(w.last, w.flags&NoFollow == 0 || w.slash)
		if err != nil {
			return err
		}
		if !more {
			break
		}
	}
	if (w.slash || w.flags&MustDir != 0) && !w.cur.Dentry.IsDir() {
		return unix.ENOTDIR
	}
	return nil
}

// step moves cur to its entry name. If that is a symlink to be followed, its
// target is put before rest and step tells that there is more to walk.
func (w *walker) step(name string, follow bool) (more bool, err error) {
	if err := w.mayLookup(); err != nil {
		return false, err
	}
	if name == "." {
		return false, nil
	}
	if name == ".." {
		return false, w.dotdot()
	}
	if len(name) > nameMax {
		return false, unix.ENAMETOOLONG
	}
	if w.cur.Dentry.sb.prefetch {
		w.prefetch(name)
	}
	ch, err := w.cur.Dentry.lookup(w.c, name)
	if err != nil {
		return false, err
	}
	if ch == nil {
		return false, unix.ENOENT
	}
	return w.into(ch, follow)
}

// maxPrefetch bounds the names of a prefetch.
const maxPrefetch = 64

// prefetch tells a file system where lookups are dear what comes after name.
func (w *walker) prefetch(name string) {
	if w.ahead > 0 {
		w.ahead--
		return
	}
	d := w.cur.Dentry
	if d.sb.policy == CacheAll {
		if ch := d.cached(name); ch != nil {
			ch.DecRef()
			return
		}
	}
	names := []string{name}
	for s := range strings.SplitSeq(w.rest, "/") {
		if s == ".." || len(s) > nameMax || len(names) == maxPrefetch {
			break
		}
		if s != "" && s != "." {
			names = append(names, s)
		}
	}
	p, ok := d.dir.(Prefetcher)
	if !ok || len(names) < 2 {
		return
	}
	if w.pre != nil && w.pre != p {
		w.pre.Prefetch(w.c, nil)
	}
	p.Prefetch(w.c, names)
	w.pre, w.ahead = p, len(names)-1
}

func (w *walker) endPrefetch() {
	if w.pre != nil {
		w.pre.Prefetch(w.c, nil)
		w.pre, w.ahead = nil, 0
	}
}

// mayLookup checks that cur may be searched.
func (w *walker) mayLookup() error {
	if w.cur.Dentry.dir == nil {
		return unix.ENOTDIR
	}
	return w.permit(w.cur.Dentry, MayExec)
}

// into makes ch, a child of cur whose reference it takes over, the current
// place: through mounts on it, or along the symlink that it is.
func (w *walker) into(ch *Dentry, follow bool) (more bool, err error) {
	if ch.mounted.Load() > 0 {
		w.ahead = 0
		from := w.cur.Mount
		w.cur.Mount.IncRef()
		next := cross(Path{from, ch})
		if next.Mount != from && w.flags&ResolveNoXdev != 0 {
			next.DecRef()
			return false, unix.EXDEV
		}
		w.cur.DecRef()
		w.cur = next
		return false, nil
	}
	if ch.link != nil && follow {
		more, err := w.follow(ch)
		ch.DecRef()
		return more, err
	}
	w.cur.Dentry.DecRef()
	w.cur.Dentry = ch
	return false, nil
}

// follow goes along the symlink ch, a child of cur.
func (w *walker) follow(ch *Dentry) (more bool, err error) {
	if w.links++; w.links > maxSymlinks {
		return false, unix.ELOOP
	}
	if w.flags&ResolveNoSymlinks != 0 || w.cur.Mount.has(unix.MS_NOSYMFOLLOW) {
		return false, unix.ELOOP
	}
	if err := w.mayFollow(ch); err != nil {
		return false, err
	}
	if magic, ok := ch.inode.(MagicLink); ok {
		return false, w.jump(magic)
	}
	target, err := ch.link.Readlink(w.c)
	if err != nil {
		return false, err
	}
	if target == "" {
		return false, unix.ENOENT
	}
	if target[0] == '/' {
		if w.flags&ResolveBeneath != 0 {
			return false, unix.EXDEV
		}
		if w.flags&ResolveNoXdev != 0 && w.root.Mount != w.cur.Mount {
			return false, unix.EXDEV
		}
		w.root.IncRef()
		w.cur.DecRef()
		w.cur = w.root
	}
	if w.slash && w.rest == "" {
		target += "/"
	}
	w.rest, w.ahead = target+w.rest, 0
	return true, nil
}

// mayFollow is the protected_symlinks check of proc(5): in a sticky directory
// that others may write, only links of one's own or of the directory's owner.
func (w *walker) mayFollow(ch *Dentry) error {
	dir, err := w.cur.Dentry.inode.Stat(w.c, 0)
	if err != nil {
		return err
	}
	if dir.Mode&(unix.S_ISVTX|0o002) != unix.S_ISVTX|0o002 {
		return nil
	}
	link, err := ch.inode.Stat(w.c, 0)
	if err != nil {
		return err
	}
	if link.UID == w.cr.FSUID || link.UID == dir.UID {
		return nil
	}
	return unix.EACCES
}

// jump follows a magic link.
func (w *walker) jump(magic MagicLink) error {
	if w.flags&ResolveNoMagic != 0 {
		return unix.ELOOP
	}
	if w.flags&scoped != 0 {
		return unix.EXDEV
	}
	next, err := magic.Follow(w.c)
	if err != nil {
		return err
	}
	if w.flags&ResolveNoXdev != 0 && next.Mount != w.cur.Mount {
		next.DecRef()
		return unix.EXDEV
	}
	w.cur.DecRef()
	w.cur = next
	return nil
}

// dotdot moves cur to its parent directory, never above root.
func (w *walker) dotdot() error {
	if w.flags&scoped != 0 && renames.Load() != w.seq {
		// A directory moved: it may have left the scope (openat2(2)).
		return unix.EAGAIN
	}
	for {
		if w.cur == w.root {
			if w.flags&ResolveBeneath != 0 {
				return unix.EXDEV
			}
			return nil
		}
		if w.cur.Dentry != w.cur.Mount.root {
			break
		}
		up, ok := w.cur.Mount.above()
		if !ok {
			return nil
		}
		if w.flags&ResolveNoXdev != 0 {
			up.DecRef()
			return unix.EXDEV
		}
		w.cur.DecRef()
		w.cur = up
	}
	p := w.cur.Dentry.parentRef()
	if p == nil {
		return nil
	}
	if m := w.cur.Mount; m.root != m.sb.root {
		// A directory moved out of a bind mount has no parent in it
		// (Linux's path_connected).
		m.sb.nameMu.RLock()
		connected := m.root.isAncestorOf(p)
		m.sb.nameMu.RUnlock()
		if !connected {
			p.DecRef()
			return unix.ENOENT
		}
	}
	w.cur.Dentry.DecRef()
	w.cur.Dentry = p
	if p.mounted.Load() > 0 {
		from := w.cur.Mount
		w.cur = cross(w.cur)
		if w.flags&ResolveNoXdev != 0 && w.cur.Mount != from {
			return unix.EXDEV
		}
	}
	return nil
}

// LookupAt resolves a path and returns a new reference to the result.
func LookupAt(c Caller, at At) (Path, error) {
	var w walker
	if err := w.init(c, &at); err != nil {
		return Path{}, err
	}
	if err := w.lookup(); err != nil {
		w.done()
		return Path{}, err
	}
	return w.take(), nil
}
