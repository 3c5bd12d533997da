package vfs

import (
	"golang.org/x/sys/unix"

	"runsc/sentry/image"
)

// StateKind implements StateSaver.
func (i *AnonInode) StateKind() image.Kind { return image.KindAnonInode }

// SaveState implements StateSaver.
func (i *AnonInode) SaveState(e *SaveEnv, id image.ID) error {
	i.mu.Lock()
	st := i.st
	i.mu.Unlock()
	return e.Put(image.KindAnonInode, &image.AnonInode{
		ID: id, Ino: i.ino, Mode: st.Mode, UID: st.UID, GID: st.GID,
		Atime: TimeRecord(st.Atime), Mtime: TimeRecord(st.Mtime), Ctime: TimeRecord(st.Ctime),
	})
}

func init() {
	RegisterState(image.KindAnonInode, func(e *RestoreEnv, id image.ID) (any, error) {
		var rec image.AnonInode
		if err := e.Get(image.KindAnonInode, id, &rec); err != nil {
			return nil, err
		}
		return restoreAnonInode(&rec), nil
	})
}

// restoreAnonInode keeps the number, which programs see in "pipe:[NUMBER]".
// Later inodes get larger ones.
func restoreAnonInode(rec *image.AnonInode) *AnonInode {
	i := &AnonInode{ino: rec.Ino, st: Stat{
		Mask: unix.STATX_BASIC_STATS, Mode: rec.Mode, UID: rec.UID, GID: rec.GID, Ino: rec.Ino, Nlink: 1,
		BlockSize: 4096, Dev: anonFS.dev,
		Atime: RestoredTime(rec.Atime), Mtime: RestoredTime(rec.Mtime), Ctime: RestoredTime(rec.Ctime),
	}}
	for {
		last := anonFS.ino.Load()
		if last >= rec.Ino || rec.Ino >= 1<<51 || anonFS.ino.CompareAndSwap(last, rec.Ino) {
			return i
		}
	}
}
