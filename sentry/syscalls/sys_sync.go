package syscalls

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/sentry/kernel"
	"runsc/sentry/vfs"
)

// sysSync implements sync(2), which cannot fail.
func sysSync(t *kernel.Task, _ Args) (uintptr, error) {
	t.MountNamespace().Sync(t)
	return 0, nil
}

// sysSyncfs implements syncfs(2).
func sysSyncfs(t *kernel.Task, a Args) (uintptr, error) {
	f, err := getFile(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	return done(f.SyncFS(t))
}

// sysFsync implements fsync(2).
func sysFsync(t *kernel.Task, a Args) (uintptr, error) { return fsync(t, a.Int(0), false) }

// sysFdatasync implements fdatasync(2).
func sysFdatasync(t *kernel.Task, a Args) (uintptr, error) { return fsync(t, a.Int(0), true) }

func fsync(t *kernel.Task, fd int32, dataOnly bool) (uintptr, error) {
	f, err := getFile(t, fd)
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	return done(f.Fsync(t, dataOnly))
}

// sysSyncFileRange implements sync_file_range(2) by writing back the whole
// file.
func sysSyncFileRange(t *kernel.Task, a Args) (uintptr, error) {
	f, err := getFile(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	off, n, flags := a.Int64(1), a.Int64(2), a.Uint(3)
	if flags&^unix.SYNC_FILE_RANGE_WRITE_AND_WAIT != 0 || off < 0 || n < 0 || off+n < off {
		return 0, unix.EINVAL
	}
	kind, err := fileKind(t, f)
	if err != nil {
		return 0, err
	}
	if kind != unix.S_IFREG && kind != unix.S_IFBLK && kind != unix.S_IFDIR {
		return 0, unix.ESPIPE
	}
	if flags&(unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WAIT_AFTER) == 0 {
		return 0, nil
	}
	return done(f.Fsync(t, true))
}

// sysFadvise64 implements posix_fadvise(2): advice is taken as read.
func sysFadvise64(t *kernel.Task, a Args) (uintptr, error) {
	f, err := getFile(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	kind, err := fileKind(t, f)
	if err != nil {
		return 0, err
	}
	if kind == unix.S_IFIFO {
		return 0, unix.ESPIPE
	}
	if a.Int64(2) < 0 || a.Uint(3) > unix.FADV_NOREUSE {
		return 0, unix.EINVAL
	}
	return 0, nil
}

// sysReadahead implements readahead(2), which has nothing to do.
func sysReadahead(t *kernel.Task, a Args) (uintptr, error) {
	f, err := t.Files().Get(a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	if !f.Readable() {
		return 0, unix.EBADF
	}
	kind, err := fileKind(t, f)
	if err != nil {
		return 0, err
	}
	if kind != unix.S_IFREG && kind != unix.S_IFBLK {
		return 0, unix.EINVAL
	}
	return 0, nil
}

// fileKind returns the type bits of f's mode.
func fileKind(t *kernel.Task, f *vfs.File) (uint32, error) {
	st, err := f.Stat(t, 0)
	return st.Mode & unix.S_IFMT, err
}

// sysCachestat implements cachestat(2) of a kernel whose page cache is the
// host's: nothing is in this one, and nothing was evicted.
func sysCachestat(t *kernel.Task, a Args) (uintptr, error) {
	f, err := getFile(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	var span [2]uint64
	if err := t.CopyIn(a.Addr(1), abi.SliceBytes(span[:])); err != nil {
		return 0, err
	}
	if a.Uint(3) != 0 {
		return 0, unix.EINVAL
	}
	var stats [5]uint64
	return done(t.CopyOut(a.Addr(2), abi.SliceBytes(stats[:])))
}
