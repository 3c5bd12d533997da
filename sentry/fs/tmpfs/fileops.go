package tmpfs

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// fileOps is an open regular file.
type fileOps struct {
	f      *file `save:"rec"`
	writes bool  `save:"rec"`
}

// Release implements vfs.FileOps. What the last writer got in advance goes.
func (o *fileOps) Release() {
	if o.writes && o.f.writers.Add(-1) == 0 {
		o.f.trim()
	}
}

// Ready implements vfs.FileOps: regular files always are.
func (o *fileOps) Ready(mask waitq.Mask) waitq.Mask {
	return mask & (waitq.In | waitq.Out | waitq.RdNorm | waitq.WrNorm)
}

// ReadAt implements vfs.ReaderAt.
func (o *fileOps) ReadAt(c vfs.Caller, vf *vfs.File, dst *mem.UserBuf, off int64) (int, error) {
	if dst.Len() == 0 {
		return 0, nil
	}
	buf := bufs.Get().(*[bufSize]byte)
	done := 0
	var err error
	for dst.Len() > 0 {
		// The first piece ends at a multiple of the buffer's size.
		want := min(dst.Len(), bufSize-int((off+int64(done))%bufSize))
		var n, copied int
		if n, err = o.f.readAt(buf[:want], off+int64(done)); n == 0 || err != nil {
			break
		}
		copied, err = dst.CopyOut(buf[:n])
		done += copied
		if err != nil || n < want {
			break
		}
	}
	bufs.Put(buf)
	o.f.accessed(c, vf, false)
	return done, err
}

// WriteAt implements vfs.WriterAt.
func (o *fileOps) WriteAt(c vfs.Caller, _ *vfs.File, src *mem.UserBuf, off int64) (int, int64, error) {
	f := o.f
	f.ioMu.Lock()
	defer f.ioMu.Unlock()
	f.pagesMu.RLock()
	size := f.size
	f.pagesMu.RUnlock()
	if off < 0 {
		off = size
	}
	if src.Len() == 0 {
		return 0, off, nil
	}
	if err := o.mayWrite(src, off, size); err != nil {
		return 0, off, err
	}
	buf := bufs.Get().(*[bufSize]byte)
	defer bufs.Put(buf)
	done := 0
	var err error
	for src.Len() > 0 {
		at := off + int64(done)
		want := min(src.Len(), bufSize-int(at%bufSize))
		n, cerr := src.CopyIn(buf[:want])
		if n > 0 {
			var w int
			w, err = f.writeAt(buf[:n], at, src.Len())
			done += w
		}
		if err == nil {
			err = cerr
		}
		if err != nil {
			break
		}
	}
	if done > 0 {
		f.wrote(c)
	}
	return done, off + int64(done), err
}

// mayWrite checks seals and the largest size.
func (o *fileOps) mayWrite(src *mem.UserBuf, off, size int64) error {
	if off >= maxFileSize {
		return unix.EFBIG
	}
	if room := maxFileSize - off; int64(src.Len()) > room {
		src.Truncate(int(room))
	}
	seals := o.f.seals.Load()
	if seals&(unix.F_SEAL_WRITE|unix.F_SEAL_FUTURE_WRITE) != 0 {
		return unix.EPERM
	}
	if seals&unix.F_SEAL_GROW != 0 && off+int64(src.Len()) > size {
		return unix.EPERM
	}
	return nil
}

// wrote sets times and clears set-id bits after a write.
func (f *file) wrote(c vfs.Caller) {
	now := vfs.TimespecOf(c.RealTime())
	f.mu.Lock()
	f.mtime, f.ctime = now, now
	if m, strip := vfs.WriteStripsMode(c, f.mode, f.gid); strip {
		f.mode = m
	}
	f.dropCapsLocked()
	f.mu.Unlock()
}

// Seek implements vfs.Seeker for SEEK_DATA and SEEK_HOLE.
func (o *fileOps) Seek(_ vfs.Caller, _ *vfs.File, off int64, whence int) (int64, error) {
	if whence != unix.SEEK_DATA && whence != unix.SEEK_HOLE {
		return 0, unix.ENOTSUP
	}
	f := o.f
	f.pagesMu.RLock()
	defer f.pagesMu.RUnlock()
	if off < 0 || off >= f.size {
		return 0, unix.ENXIO
	}
	end := pagesOf(f.size)
	page := f.pages.next(off/pageSize, end, whence == unix.SEEK_DATA)
	switch {
	case page == off/pageSize:
		return off, nil
	case page < end:
		return page * pageSize, nil
	case whence == unix.SEEK_HOLE:
		return f.size, nil // the end of a file is a hole (lseek(2))
	}
	return 0, unix.ENXIO
}

// Fallocate implements vfs.Allocator.
func (o *fileOps) Fallocate(c vfs.Caller, mode uint32, off, n int64) error {
	const keep, punch = unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_PUNCH_HOLE
	switch mode {
	case 0, keep, punch | keep:
	default:
		return unix.EOPNOTSUPP
	}
	f := o.f
	f.ioMu.Lock()
	defer f.ioMu.Unlock()
	end := off + n
	if end > maxFileSize {
		return unix.EFBIG
	}
	seals := f.seals.Load()
	f.pagesMu.RLock()
	grows := mode&keep == 0 && end > f.size
	f.pagesMu.RUnlock()
	if seals&(unix.F_SEAL_WRITE|unix.F_SEAL_FUTURE_WRITE) != 0 && mode&punch != 0 ||
		seals&unix.F_SEAL_GROW != 0 && grows {
		return unix.EPERM
	}
	if mode&punch != 0 {
		if err := f.punch(off, end); err != nil {
			return err
		}
	}
	if mode&punch == 0 {
		if err := f.preallocate(off, end, mode&keep == 0); err != nil {
			return err
		}
	}
	f.wrote(c)
	return nil
}

// punch makes [off, end) read as zero and frees its whole pages.
func (f *file) punch(off, end int64) error {
	f.pagesMu.Lock()
	firstFull, lastFull := pagesOf(off), end/pageSize
	var freed []mem.Range
	var err error
	if firstFull <= lastFull {
		err = f.zeroLocked(off, firstFull*pageSize)
		if err == nil {
			err = f.zeroLocked(lastFull*pageSize, end)
		}
		freed = f.detachLocked(firstFull, lastFull)
	} else {
		err = f.zeroLocked(off, end)
	}
	f.pagesMu.Unlock()
	if firstFull < lastFull {
		// Private copies stay: only truncate takes them (shmem_fallocate).
		f.invalidate(firstFull*pageSize, (lastFull-firstFull)*pageSize, false)
	}
	f.drop(freed)
	return err
}

// zeroLocked clears bytes [off, end), which lie in one page.
func (f *file) zeroLocked(off, end int64) error {
	if off >= end {
		return nil
	}
	frame, ok := f.pages.get(off / pageSize)
	if !ok {
		return nil
	}
	in := uint64(off % pageSize)
	return f.fs.mf.Zero(mem.Range{Start: frame + in, End: frame + in + uint64(end-off)})
}

// preallocate fills [off, end). All or nothing cannot be promised: what was
// had before ENOSPC stays, as holes made real.
func (f *file) preallocate(off, end int64, grow bool) error {
	const step = maxAlloc / pageSize
	last := pagesOf(end)
	if limit := f.fs.limitPages(); limit > 0 && last-off/pageSize > limit {
		return unix.ENOSPC
	}
	for page := off / pageSize; page < last; page += step {
		f.pagesMu.Lock()
		n := min(step, last-page)
		_, err := f.fillLocked(page, n, n)
		f.pagesMu.Unlock()
		if err != nil {
			return err
		}
	}
	f.pagesMu.Lock()
	// Asked for, not taken in advance: it counts and it stays.
	f.ahead = 0
	if grow {
		f.size = max(f.size, end)
	}
	f.pagesMu.Unlock()
	return nil
}

// Mappable implements vfs.Mapper.
func (o *fileOps) Mappable(c vfs.Caller, vf *vfs.File) (mem.Mappable, error) {
	st, err := vf.Stat(c, unix.STATX_INO)
	if err != nil {
		return nil, err
	}
	return &mapping{f: o.f, file: vf, dev: st.Dev, ino: st.Ino}, nil
}

// AddSeals implements fcntl(2)'s F_ADD_SEALS.
func (o *fileOps) AddSeals(seals uint32) error {
	const all = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE | unix.F_SEAL_FUTURE_WRITE | 0x20
	if seals&^uint32(all) != 0 {
		return unix.EINVAL
	}
	if !o.writes {
		return unix.EPERM
	}
	f := o.f
	f.ioMu.Lock()
	defer f.ioMu.Unlock()
	old := f.seals.Load()
	if old&unix.F_SEAL_SEAL != 0 {
		return unix.EPERM
	}
	if seals&unix.F_SEAL_WRITE != 0 && old&unix.F_SEAL_WRITE == 0 {
		f.pagesMu.RLock()
		mapped := f.writableLocked()
		f.pagesMu.RUnlock()
		if mapped {
			return unix.EBUSY
		}
	}
	f.seals.Store(old | seals)
	return nil
}

// Seals implements fcntl(2)'s F_GET_SEALS.
func (o *fileOps) Seals() uint32 { return o.f.seals.Load() }
