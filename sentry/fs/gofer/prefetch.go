package gofer

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/vfs"
)

// found is what a walk ahead has read: the attributes of a name in a directory.
type found struct {
	dir  inodeKey
	name string
	stx  unix.Statx_t
}

// Prefetches tells vfs whether to announce its walks: in remote mode all names
// of a path go in one exchange.
func (fs *Filesystem) Prefetches() bool { return !fs.client.backend.Direct() }

// Prefetch implements vfs.Prefetcher. What it reads is for the walk that is
// about to be made, and for nobody else: then it is gone.
func (d *dir) Prefetch(c vfs.Caller, names []string) {
	fs := d.fs
	if c == nil || c.Waiter() == nil {
		return
	}
	w := c.Waiter()
	if names == nil {
		fs.keepAhead(w, nil)
		return
	}
	h, err := d.open(byPath)
	if err != nil {
		return // the lookup reports it
	}
	defer fs.put(h)
	stats, err := fs.client.backend.StatWalk(h.fd, names)
	if err != nil && len(stats) == 0 {
		return
	}
	list := make([]found, len(stats))
	key := d.key
	for i := range stats {
		list[i] = found{key, names[i], stats[i]}
		key = fs.keyOf(&stats[i])
	}
	fs.keepAhead(w, list)
}

func (fs *Filesystem) keepAhead(w *waitq.Waiter, list []found) {
	fs.aheadMu.Lock()
	defer fs.aheadMu.Unlock()
	if list == nil {
		delete(fs.ahead, w)
		return
	}
	if fs.ahead == nil {
		fs.ahead = map[*waitq.Waiter][]found{}
	}
	fs.ahead[w] = list
}

// lookup reads the attributes of name, unless a walk of c has just done so.
func (d *dir) lookup(c vfs.Caller, name string, stx *unix.Statx_t) error {
	if d.fs.takeAhead(c, d.key, name, stx) {
		return nil
	}
	h, err := d.open(byPath)
	if err != nil {
		return err
	}
	defer d.fs.put(h)
	return d.fs.client.backend.Stat(h.target(), name, stx)
}

// takeAhead takes what a walk ahead has read, once.
func (fs *Filesystem) takeAhead(c vfs.Caller, dir inodeKey, name string, stx *unix.Statx_t) bool {
	if c == nil || fs.client.backend.Direct() {
		return false
	}
	fs.aheadMu.Lock()
	defer fs.aheadMu.Unlock()
	list := fs.ahead[c.Waiter()]
	for i := range list {
		if f := &list[i]; f.dir == dir && f.name == name {
			*stx, f.name = f.stx, ""
			return true
		}
	}
	return false
}
