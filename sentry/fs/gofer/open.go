package gofer

import (
	"slices"

	"golang.org/x/sys/unix"

	"runsc/pkg/hostfs"
)

// open returns a new reference to the handle of a kind, opening it if there is
// none. ESTALE: the host has put another file in the place, or none.
func (i *inode) open(k kind) (*handle, error) {
	fds := i.fs.client.fds
	if h := fds.get(i, k); h != nil {
		return h, nil
	}
	if k == byPath {
		return i.openPath()
	}
	return i.openData(k)
}

// openPath opens the handle byPath. It goes up to the nearest directory that
// is open and walks down again, without recursion: a guest can nest
// directories deeply.
func (i *inode) openPath() (*handle, error) {
	fs, fds := i.fs, i.fs.client.fds
	var chain []*inode // from i upwards, each but i with a reference
	var names []string
	defer func() {
		for _, p := range chain[min(1, len(chain)):] {
			p.DecRef()
		}
	}()
	var h *handle
	for at := i; ; {
		chain = append(chain, at)
		parent, name := at.place()
		if parent == nil {
			return nil, unix.ESTALE
		}
		names = append(names, name)
		if h = fds.get(parent, byPath); h != nil {
			parent.DecRef()
			break
		}
		at = parent
	}
	down := slices.Clone(chain)
	slices.Reverse(down)
	slices.Reverse(names)
	batch := 1
	if !fs.client.backend.Direct() {
		batch = maxBatch
	}
	for len(names) > 0 {
		n := min(batch, len(names))
		next, err := fs.walk(h, down[:n], names[:n])
		if err == unix.ENFILE && batch > 1 {
			batch = 1
			continue
		}
		fs.put(h)
		if err != nil {
			return nil, err
		}
		h, down, names = next, down[n:], names[n:]
	}
	return h, nil
}

// maxBatch bounds what one walk opens at once.
const maxBatch = 64

// walk opens files, whose names lead from one to the next, and returns the
// handle of the last.
func (fs *Filesystem) walk(from *handle, files []*inode, names []string) (*handle, error) {
	cl := fs.client
	if slices.Contains(names, "") {
		return nil, unix.ESTALE
	}
	var steps []hostfs.Step
	_, err := cl.fds.retry(func() (int, error) {
		var err error
		if steps, err = cl.backend.Walk(from.fd, names, !fs.exclusive); err != nil {
			cl.closeSteps(steps)
		}
		return -1, err
	})
	if err != nil {
		return nil, gone(err)
	}
	for k := range steps {
		if fs.exclusive {
			continue
		}
		if err := files[k].verify(&steps[k].Stat); err != nil {
			cl.closeSteps(steps)
			return nil, err
		}
	}
	var h *handle
	for k := range steps {
		if h != nil {
			fs.put(h)
		}
		h = cl.fds.add(files[k], byPath, steps[k].Ref, false)
	}
	return h, nil
}

func (cl *Client) closeSteps(steps []hostfs.Step) {
	for _, s := range steps {
		cl.backend.Close(s.Ref)
	}
}

// gone makes ESTALE of the errors of a file that is not in its place any more.
func gone(err error) error {
	switch err {
	case unix.ENOENT, unix.ELOOP, unix.ENXIO, unix.ENOTDIR:
		return unix.ESTALE
	}
	return err
}

// openIn opens the file for data by its name in the directory of dirH, and
// checks that it is the file.
func (i *inode) openIn(dirH *handle, k kind) (*handle, error) {
	i.mu.Lock()
	name := i.name
	i.mu.Unlock()
	if name == "" {
		return nil, unix.ESTALE
	}
	cl := i.fs.client
	var stx *unix.Statx_t
	if !i.fs.exclusive {
		stx = &unix.Statx_t{}
	}
	fd, writeOnly, err := k.openWith(func(flags int) (int, error) {
		return cl.fds.retry(func() (int, error) { return cl.backend.OpenAt(dirH.fd, name, flags, stx) })
	})
	if err != nil {
		return nil, gone(err)
	}
	if stx != nil {
		if err := i.verify(stx); err != nil {
			unix.Close(fd)
			return nil, err
		}
	}
	return cl.fds.add(i, k, fd, writeOnly), nil
}

// verify checks that stx is of this file.
func (i *inode) verify(stx *unix.Statx_t) error {
	if i.fs.keyOf(stx) != i.key || uint32(stx.Mode)&unix.S_IFMT != i.typ {
		return unix.ESTALE
	}
	i.update(stx)
	return nil
}

// openData opens a handle for reading or writing.
func (i *inode) openData(k kind) (*handle, error) {
	fds := i.fs.client.fds
	if k == forRead {
		if h := fds.get(i, forWrite); h != nil {
			if !h.writeOnly {
				return h, nil
			}
			i.fs.put(h)
		}
	}
	if p := fds.get(i, byPath); p != nil {
		h, err := i.openFrom(p, k)
		i.fs.put(p)
		if err != unix.EOPNOTSUPP {
			return h, err
		}
	}
	parent, _ := i.place()
	if parent == nil {
		return i.openUnnamed(k)
	}
	defer parent.DecRef()
	h, err := parent.open(byPath)
	if err != nil {
		return nil, err
	}
	defer i.fs.put(h)
	return i.openIn(h, k)
}

// openFrom opens what another handle of the file stands for.
func (i *inode) openFrom(p *handle, k kind) (*handle, error) {
	cl := i.fs.client
	dir := 0
	if i.typ == unix.S_IFDIR {
		dir = unix.O_DIRECTORY
	}
	fd, writeOnly, err := k.openWith(func(flags int) (int, error) {
		return cl.fds.retry(func() (int, error) { return cl.backend.Open(p.target(), flags|dir) })
	})
	if err != nil {
		return nil, err
	}
	return cl.fds.add(i, k, fd, writeOnly), nil
}

// openUnnamed opens a file without a name from a handle that it has.
func (i *inode) openUnnamed(k kind) (*handle, error) {
	h := i.fs.client.fds.getAny(i)
	if h == nil {
		return nil, unix.ESTALE
	}
	defer i.fs.put(h)
	return i.openFrom(h, k)
}

// openWith opens with the flags of the kind. Files of the host's proc or sys
// that have no read method can be opened for writing only.
func (k kind) openWith(open func(flags int) (int, error)) (fd int, writeOnly bool, err error) {
	fd, err = open(k.flags())
	switch {
	case err == unix.EACCES && k == forWrite:
		fd, err = open(unix.O_WRONLY)
		return fd, true, err
	case err == unix.EPERM && k == readQuiet:
		fd, err = open(unix.O_RDONLY)
	}
	return fd, false, err
}

func (k kind) flags() int {
	switch k {
	case forWrite:
		return unix.O_RDWR
	case readQuiet:
		return unix.O_RDONLY | unix.O_NOATIME
	}
	return unix.O_RDONLY
}
