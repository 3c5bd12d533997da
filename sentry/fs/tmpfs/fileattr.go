package tmpfs

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// File attributes of ioctl_iflags(2), whose bits are those of statx(2).
const (
	protectAttrs = unix.STATX_ATTR_IMMUTABLE | unix.STATX_ATTR_APPEND
	knownAttrs   = protectAttrs | unix.STATX_ATTR_NODUMP | flagNoatime
	flagNoatime  = 0x80 // FS_NOATIME_FL
)

// fileAttr implements FS_IOC_GETFLAGS and FS_IOC_SETFLAGS; ENOTTY for others.
func (i *inode) fileAttr(c vfs.Caller, f *vfs.File, m mem.Memory, cmd uint32, arg uint64) (uintptr, error) {
	const getFlags, setFlags = 0x80086601, 0x40086602
	var flags uint32
	switch cmd {
	case getFlags:
		i.mu.Lock()
		flags = uint32(i.attrs)
		i.mu.Unlock()
		buf := mem.NewUserBuf(m, arg, 4)
		_, err := buf.CopyOut(abi.Bytes(&flags))
		return 0, err
	case setFlags:
	default:
		return 0, unix.ENOTTY
	}
	buf := mem.NewUserBuf(m, arg, 4)
	if _, err := buf.CopyIn(abi.Bytes(&flags)); err != nil {
		return 0, err
	}
	if p := f.Path(); p.Mount != nil && p.Mount.ReadOnly() {
		return 0, unix.EROFS
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	cr := c.Cred()
	if cr.FSUID != i.uid && !cr.Has(unix.CAP_FOWNER) {
		return 0, unix.EPERM
	}
	if (uint64(flags)^i.attrs)&protectAttrs != 0 && !cr.Has(unix.CAP_LINUX_IMMUTABLE) {
		return 0, unix.EPERM
	}
	if flags&^uint32(knownAttrs) != 0 {
		return 0, unix.EOPNOTSUPP
	}
	i.attrs = uint64(flags)
	i.ctime = vfs.TimespecOf(c.RealTime())
	return 0, nil
}

// Ioctl implements vfs.Ioctler.
func (o *fileOps) Ioctl(c vfs.Caller, f *vfs.File, m mem.Memory, cmd uint32, arg uint64) (uintptr, error) {
	return o.f.fileAttr(c, f, m, cmd, arg)
}

// Ioctl implements vfs.Ioctler.
func (o dirOps) Ioctl(c vfs.Caller, f *vfs.File, m mem.Memory, cmd uint32, arg uint64) (uintptr, error) {
	return o.d.fileAttr(c, f, m, cmd, arg)
}
