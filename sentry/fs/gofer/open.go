package gofer

import (
	"golang.org/x/sys/unix"
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

// openPath opens the O_PATH handle. It goes up to the nearest directory that
// is open and down again, without recursion: a guest can nest directories
// deeply.
func (i *inode) openPath() (*handle, error) {
	fs, fds := i.fs, i.fs.client.fds
	var chain []*inode // from i upwards, each but i with a reference
	defer func() {
		for _, p := range chain[min(1, len(chain)):] {
			p.DecRef()
		}
	}()
	var h *handle
	for at := i; ; {
		chain = append(chain, at)
		parent, _ := at.place()
		if parent == nil {
			return nil, unix.ESTALE
		}
		if h = fds.get(parent, byPath); h != nil {
			parent.DecRef()
			break
		}
		at = parent
	}
	for n := len(chain) - 1; n >= 0; n-- {
		at := chain[n]
		next, err := at.openIn(h, byPath)
		fs.put(h)
		if err != nil {
			return nil, err
		}
		h = next
	}
	return h, nil
}

// openIn opens the file by its name in the directory of dirH, and checks that
// it is the file.
func (i *inode) openIn(dirH *handle, k kind) (*handle, error) {
	i.mu.Lock()
	name := i.name
	i.mu.Unlock()
	if name == "" {
		return nil, unix.ESTALE
	}
	fds := i.fs.client.fds
	flags, writeOnly := k.flags(), false
	open := func() (int, error) { return openat(dirH.fd, name, flags, 0) }
	fd, err := fds.retry(open)
	if err == unix.EACCES && k == forWrite {
		// A file of the host's proc or sys that has no read method.
		flags, writeOnly = unix.O_WRONLY, true
		fd, err = fds.retry(open)
	}
	switch err {
	case nil:
	case unix.ENOENT, unix.ELOOP, unix.ENXIO, unix.ENOTDIR:
		return nil, unix.ESTALE
	default:
		return nil, err
	}
	if !i.fs.exclusive {
		if err := i.verify(fd); err != nil {
			unix.Close(fd)
			return nil, err
		}
	}
	return fds.add(i, k, fd, writeOnly), nil
}

// verify checks that fd is this file.
func (i *inode) verify(fd int) error {
	var stx unix.Statx_t
	if err := statx(fd, "", &stx); err != nil {
		return err
	}
	if i.fs.keyOf(&stx) != i.key || uint32(stx.Mode)&unix.S_IFMT != i.typ {
		return unix.ESTALE
	}
	i.update(&stx)
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

// openFrom reopens the file of an O_PATH handle.
func (i *inode) openFrom(p *handle, k kind) (*handle, error) {
	if i.typ == unix.S_IFDIR {
		fd, err := i.fs.client.fds.retry(func() (int, error) { return openat(p.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0) })
		if err != nil {
			return nil, err
		}
		return i.fs.client.fds.add(i, k, fd, false), nil
	}
	writeOnly := false
	fd, err := i.fs.client.reopen(p.fd, k.flags())
	if err == unix.EACCES && k == forWrite {
		writeOnly = true
		fd, err = i.fs.client.reopen(p.fd, unix.O_WRONLY)
	}
	if err != nil {
		return nil, err
	}
	return i.fs.client.fds.add(i, k, fd, writeOnly), nil
}

// openUnnamed opens a file without a name from a data handle that it has.
func (i *inode) openUnnamed(k kind) (*handle, error) {
	h := i.fs.client.fds.getAny(i)
	if h == nil {
		return nil, unix.ESTALE
	}
	defer i.fs.put(h)
	return i.openFrom(h, k)
}

func (k kind) flags() int {
	switch k {
	case forRead:
		return unix.O_RDONLY
	case forWrite:
		return unix.O_RDWR
	}
	return unix.O_PATH
}
