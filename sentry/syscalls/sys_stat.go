package syscalls

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/pkg/abi/linux"
	"runsc/sentry/kernel"
	"runsc/sentry/vfs"
)

// sysStat implements stat(2).
func sysStat(t *kernel.Task, a Args) (uintptr, error) {
	return statAt(t, unix.AT_FDCWD, a.Addr(0), a.Addr(1), 0)
}

// sysLstat implements lstat(2).
func sysLstat(t *kernel.Task, a Args) (uintptr, error) {
	return statAt(t, unix.AT_FDCWD, a.Addr(0), a.Addr(1), unix.AT_SYMLINK_NOFOLLOW)
}

// sysFstat implements fstat(2).
func sysFstat(t *kernel.Task, a Args) (uintptr, error) {
	st, err := statFD(t, a.Int(0), unix.STATX_BASIC_STATS)
	if err != nil {
		return 0, err
	}
	return copyOutStat(t, a.Addr(1), &st)
}

// sysNewfstatat implements fstatat(2).
func sysNewfstatat(t *kernel.Task, a Args) (uintptr, error) {
	return statAt(t, a.Int(0), a.Addr(1), a.Addr(2), a.Int(3))
}

func statAt(t *kernel.Task, dirfd int32, name, buf uint64, flags int32) (uintptr, error) {
	if flags&^(unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT|unix.AT_EMPTY_PATH) != 0 {
		return 0, unix.EINVAL
	}
	st, err := statName(t, dirfd, name, flags, unix.STATX_BASIC_STATS)
	if err != nil {
		return 0, err
	}
	return copyOutStat(t, buf, &st)
}

// statName is the lookup of stat and statx. With AT_EMPTY_PATH a null name is
// an empty one (Linux 6.11).
func statName(t *kernel.Task, dirfd int32, name uint64, flags int32, mask uint32) (vfs.Stat, error) {
	var s string
	if flags&unix.AT_EMPTY_PATH == 0 || name != 0 {
		var err error
		if s, err = t.CopyInPath(name); err != nil {
			return vfs.Stat{}, err
		}
	}
	if s == "" && flags&unix.AT_EMPTY_PATH != 0 && dirfd != unix.AT_FDCWD {
		return statFD(t, dirfd, mask) // also for files without a path
	}
	p, err := lookupName(t, dirfd, s, atFlags(flags))
	if err != nil {
		return vfs.Stat{}, err
	}
	defer p.put()
	return vfs.StatAt(t, p.At, mask)
}

func statFD(t *kernel.Task, fd int32, mask uint32) (vfs.Stat, error) {
	f, err := t.Files().Get(fd)
	if err != nil {
		return vfs.Stat{}, err
	}
	defer f.DecRef()
	return f.Stat(t, mask)
}

func copyOutStat(t *kernel.Task, addr uint64, st *vfs.Stat) (uintptr, error) {
	out := unix.Stat_t{
		Dev: st.Dev, Ino: st.Ino, Nlink: uint64(st.Nlink), Mode: st.Mode, Uid: st.UID, Gid: st.GID,
		Rdev: st.Rdev, Size: int64(st.Size), Blksize: int64(st.BlockSize), Blocks: int64(st.Blocks),
		Atim: unix.Timespec{Sec: st.Atime.Sec, Nsec: int64(st.Atime.Nsec)},
		Mtim: unix.Timespec{Sec: st.Mtime.Sec, Nsec: int64(st.Mtime.Nsec)},
		Ctim: unix.Timespec{Sec: st.Ctime.Sec, Nsec: int64(st.Ctime.Nsec)},
	}
	return done(t.CopyOut(addr, abi.Bytes(&out)))
}

// sysStatx implements statx(2).
func sysStatx(t *kernel.Task, a Args) (uintptr, error) {
	flags, mask := a.Int(2), a.Uint(3)
	if mask&unix.STATX__RESERVED != 0 || flags&linux.AT_STATX_SYNC_TYPE == linux.AT_STATX_SYNC_TYPE {
		return 0, unix.EINVAL
	}
	if flags&^(unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT|unix.AT_EMPTY_PATH|linux.AT_STATX_SYNC_TYPE) != 0 {
		return 0, unix.EINVAL
	}
	st, err := statName(t, a.Int(0), a.Addr(1), flags, mask)
	if err != nil {
		return 0, err
	}
	mntID := uint32(unix.STATX_MNT_ID)
	if mask&statxMntIDUnique != 0 {
		mntID = statxMntIDUnique // numbers of mounts are not used twice
	}
	out := unix.Statx_t{
		Mask: st.Mask | unix.STATX_BASIC_STATS | mntID, Mnt_id: st.MountID, Blksize: st.BlockSize, Attributes: st.Attributes,
		Attributes_mask: statxAttributes, Nlink: st.Nlink, Uid: st.UID, Gid: st.GID, Mode: uint16(st.Mode),
		Ino: st.Ino, Size: st.Size, Blocks: st.Blocks,
		Atime: statxTime(st.Atime), Btime: statxTime(st.Btime), Ctime: statxTime(st.Ctime), Mtime: statxTime(st.Mtime),
		Rdev_major: unix.Major(st.Rdev), Rdev_minor: unix.Minor(st.Rdev),
		Dev_major: unix.Major(st.Dev), Dev_minor: unix.Minor(st.Dev),
	}
	return done(t.CopyOut(a.Addr(4), abi.Bytes(&out)))
}

// statxAttributes are the attribute bits that mean something when clear.
const statxAttributes = unix.STATX_ATTR_AUTOMOUNT | unix.STATX_ATTR_MOUNT_ROOT | unix.STATX_ATTR_IMMUTABLE |
	unix.STATX_ATTR_APPEND | unix.STATX_ATTR_NODUMP

// statxMntIDUnique is STATX_MNT_ID_UNIQUE.
const statxMntIDUnique = 0x4000

func statxTime(ts vfs.Timespec) unix.StatxTimestamp {
	return unix.StatxTimestamp{Sec: ts.Sec, Nsec: ts.Nsec}
}

// sysAccess implements access(2).
func sysAccess(t *kernel.Task, a Args) (uintptr, error) {
	return accessAt(t, unix.AT_FDCWD, a.Addr(0), a.Uint(1), 0)
}

// sysFaccessat implements the system call faccessat, which has no flags.
func sysFaccessat(t *kernel.Task, a Args) (uintptr, error) {
	return accessAt(t, a.Int(0), a.Addr(1), a.Uint(2), 0)
}

// sysFaccessat2 implements faccessat2(2).
func sysFaccessat2(t *kernel.Task, a Args) (uintptr, error) {
	return accessAt(t, a.Int(0), a.Addr(1), a.Uint(2), a.Int(3))
}

func accessAt(t *kernel.Task, dirfd int32, name uint64, mode uint32, flags int32) (uintptr, error) {
	if mode&^(unix.R_OK|unix.W_OK|unix.X_OK) != 0 {
		return 0, unix.EINVAL
	}
	if flags&^(unix.AT_EACCESS|unix.AT_SYMLINK_NOFOLLOW|unix.AT_EMPTY_PATH) != 0 {
		return 0, unix.EINVAL
	}
	p, err := lookup(t, dirfd, name, atFlags(flags))
	if err != nil {
		return 0, err
	}
	defer p.put()
	return done(vfs.AccessAt(t, p.At, mode, flags&unix.AT_EACCESS != 0))
}

// sysStatfs implements statfs(2).
func sysStatfs(t *kernel.Task, a Args) (uintptr, error) {
	p, err := lookup(t, unix.AT_FDCWD, a.Addr(0), 0)
	if err != nil {
		return 0, err
	}
	defer p.put()
	st, flags, err := vfs.StatfsAt(t, p.At)
	if err != nil {
		return 0, err
	}
	return copyOutStatfs(t, a.Addr(1), &st, flags)
}

// sysFstatfs implements fstatfs(2).
func sysFstatfs(t *kernel.Task, a Args) (uintptr, error) {
	f, err := t.Files().Get(a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	st, flags, err := f.Statfs(t)
	if err != nil {
		return 0, err
	}
	return copyOutStatfs(t, a.Addr(1), &st, flags)
}

func copyOutStatfs(t *kernel.Task, addr uint64, st *vfs.Statfs, flags int64) (uintptr, error) {
	out := unix.Statfs_t{
		Type: st.Type, Bsize: st.Bsize, Blocks: st.Blocks, Bfree: st.Bfree, Bavail: st.Bavail,
		Files: st.Files, Ffree: st.Ffree, Fsid: unix.Fsid{Val: st.Fsid}, Namelen: st.Namelen,
		Frsize: st.Frsize, Flags: flags,
	}
	return done(t.CopyOut(addr, abi.Bytes(&out)))
}
