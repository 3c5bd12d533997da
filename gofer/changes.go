package gofer

import (
	"golang.org/x/sys/unix"
)

func (c *fileCall) create() error {
	dir, name, _, err := c.nodeName()
	if err != nil {
		return err
	}
	a, err := c.attr()
	if err != nil {
		return err
	}
	var stx unix.Statx_t
	err = c.donate(c.s.fs.Create(dir, name, a, &stx))
	return c.status(&stx, err)
}

func (c *fileCall) tmpfile() error {
	dir, err := c.node()
	if err != nil {
		return err
	}
	a, err := c.attr()
	if err != nil {
		return err
	}
	var stx unix.Statx_t
	err = c.donate(c.s.fs.Tmpfile(dir.fd, a, &stx))
	return c.status(&stx, err)
}

// make also makes device nodes for direct mode, in a directory that the Sentry
// passes.
func (c *fileCall) make() error {
	t, err := c.target()
	if err != nil {
		return err
	}
	name, err := c.name()
	if err != nil {
		return err
	}
	a, err := c.attr()
	if err != nil {
		return err
	}
	switch a.Mode & unix.S_IFMT {
	case unix.S_IFCHR, unix.S_IFBLK:
	case unix.S_IFDIR, unix.S_IFLNK, unix.S_IFIFO, unix.S_IFSOCK:
		if t.Data {
			return unix.EPERM // no need of the gofer's rights
		}
	default:
		return unix.EINVAL
	}
	var stx unix.Statx_t
	return c.status(&stx, c.s.fs.Make(t.FD, name, a, &stx))
}

func (c *fileCall) link() error {
	t, err := c.target()
	if err != nil {
		return err
	}
	dir, name, _, err := c.nodeName()
	if err != nil {
		return err
	}
	return c.s.fs.Link(t, dir, name)
}

func (c *fileCall) unlink() error {
	dir, name, _, err := c.nodeName()
	if err != nil {
		return err
	}
	return c.s.fs.Unlink(dir, name, int(c.d.U32())&unix.AT_REMOVEDIR)
}

func (c *fileCall) rename() error {
	from, name, _, err := c.nodeName()
	if err != nil {
		return err
	}
	to, newName, _, err := c.nodeName()
	if err != nil {
		return err
	}
	return c.s.fs.Rename(from, name, to, newName, c.d.U32())
}

func (c *fileCall) setAttr() error {
	t, err := c.target()
	if err != nil {
		return err
	}
	a := c.d.SetAttr()
	if c.d.Bad {
		return unix.EINVAL
	}
	return c.s.fs.SetAttr(t, a)
}

func (c *fileCall) getxattr() error {
	t, err := c.target()
	if err != nil {
		return err
	}
	v, err := c.s.fs.Getxattr(t, c.d.Str())
	c.Data(v)
	return err
}

func (c *fileCall) setxattr() error {
	t, err := c.target()
	if err != nil {
		return err
	}
	name, value, flags := c.d.Str(), c.d.Data(), int(c.d.U32())
	if c.d.Bad {
		return unix.EINVAL
	}
	return c.s.fs.Setxattr(t, name, value, flags)
}

func (c *fileCall) listxattr() error {
	t, err := c.target()
	if err != nil {
		return err
	}
	names, err := c.s.fs.Listxattr(t)
	c.U16(uint16(len(names)))
	for _, s := range names {
		c.Str(s)
	}
	return err
}

func (c *fileCall) removexattr() error {
	t, err := c.target()
	if err != nil {
		return err
	}
	return c.s.fs.Removexattr(t, c.d.Str())
}

// socketType checks the type of a unix socket.
func socketType(n uint32) (int, error) {
	switch n {
	case unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_SEQPACKET:
		return int(n), nil
	}
	return 0, unix.EPROTONOSUPPORT
}

func (c *fileCall) connect() error {
	t, err := c.target()
	if err != nil {
		return err
	}
	typ, err := socketType(c.d.U32())
	if err != nil {
		return err
	}
	c.out, err = c.s.fs.Connect(t, typ)
	return err
}

func (c *fileCall) bind() error {
	dir, name, _, err := c.nodeName()
	if err != nil {
		return err
	}
	typ, err := socketType(c.d.U32())
	if err != nil {
		return err
	}
	a, err := c.attr()
	if err != nil {
		return err
	}
	var stx unix.Statx_t
	c.out, err = c.s.fs.Bind(dir, name, typ, a, &stx)
	return c.status(&stx, err)
}

func (c *fileCall) inotify() (err error) {
	c.out, err = c.s.fs.Inotify()
	return err
}

// watchMask are the events that the Sentry can ask for.
const watchMask = unix.IN_ALL_EVENTS | unix.IN_DONT_FOLLOW | unix.IN_EXCL_UNLINK

func (c *fileCall) watch() error {
	t, err := c.target()
	if err != nil {
		return err
	}
	wd, err := c.s.fs.Watch(t, c.d.U32()&watchMask)
	c.U32(uint32(int32(wd)))
	return err
}

func (c *fileCall) unwatch() error {
	c.s.fs.Unwatch(int(int32(c.d.U32())))
	return nil
}
