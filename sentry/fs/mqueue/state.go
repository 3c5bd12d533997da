package mqueue

import (
	"fmt"
	"sort"

	"golang.org/x/sys/unix"

	"runsc/sentry/image"
	"runsc/sentry/vfs"
)

// StateKind implements vfs.StateSaver.
func (fs *FS) StateKind() image.Kind { return image.KindMqueueFS }

// SaveState implements vfs.StateSaver: the file system with all queues that
// have a name.
func (fs *FS) SaveState(e *vfs.SaveEnv, id image.ID) error {
	l := &fs.Limits
	fs.mu.Lock()
	rec := image.MqueueFS{ID: id, Dev: fs.dev, LastIno: fs.lastIno, Mode: fs.rootSt.Mode & 0o7777, UID: fs.rootSt.UID, GID: fs.rootSt.GID,
		Limits: []int64{l.QueuesMax.Load(), l.MsgMax.Load(), l.MsgSizeMax.Load(), l.MsgDefault.Load(), l.MsgSizeDefault.Load()}}
	names := make([]string, 0, len(fs.queues))
	for name := range fs.queues {
		names = append(names, name)
	}
	sort.Strings(names)
	var list []*Queue
	for _, name := range names {
		list = append(list, fs.queues[name])
	}
	fs.mu.Unlock()
	for i, q := range list {
		ref, err := e.Save(q)
		if err != nil {
			return err
		}
		rec.Queues = append(rec.Queues, image.MqueueName{Name: names[i], Queue: ref.ID})
	}
	return e.Put(image.KindMqueueFS, &rec)
}

// StateKind implements vfs.StateSaver.
func (q *Queue) StateKind() image.Kind { return image.KindMqueue }

// saveBatch is how many bytes of messages go into one record, but for a
// longer message.
const saveBatch = 1 << 20

// SaveState implements vfs.StateSaver.
func (q *Queue) SaveState(e *vfs.SaveEnv, id image.ID) error {
	fs, err := e.Save(q.fs)
	if err != nil {
		return err
	}
	q.mu.Lock()
	rec := image.Mqueue{ID: id, FS: fs.ID, Ino: q.ino, MaxMsg: q.attr.MaxMsg, MsgSize: q.attr.MsgSize, Owner: q.owner,
		Mode: q.st.Mode, UID: q.st.UID, GID: q.st.GID,
		Atime: vfs.TimeRecord(q.st.Atime), Mtime: vfs.TimeRecord(q.st.Mtime), Ctime: vfs.TimeRecord(q.st.Ctime)}
	messages, notify := append([]message{}, q.messages...), q.notify
	q.mu.Unlock()
	for len(messages) > 0 {
		part := image.MqueueMessages{}
		size := 0
		for len(messages) > 0 && (size == 0 || size+len(messages[0].data) <= saveBatch) {
			m := messages[0]
			part.Messages = append(part.Messages, image.MqueueMessage{Prio: m.prio, Data: m.data})
			size += len(m.data) + messageCost
			messages = messages[1:]
		}
		part.ID, _ = e.ID(&part)
		if err := e.Put(image.KindMqueueMessages, &part); err != nil {
			return err
		}
		rec.Messages = append(rec.Messages, part.ID)
	}
	e.Later(func() error {
		if notify != nil && e.TaskID != nil {
			if rec.Target = e.TaskID(notify.target); rec.Target != 0 {
				rec.TGID, rec.Signal, rec.Value = notify.tgid, notify.signal, notify.value
			}
		}
		return e.Put(image.KindMqueue, &rec)
	})
	return nil
}

func init() {
	vfs.RegisterState(image.KindMqueueFS, func(e *vfs.RestoreEnv, id image.ID) (any, error) {
		var rec image.MqueueFS
		if err := e.Get(image.KindMqueueFS, id, &rec); err != nil {
			return nil, err
		}
		return restoreFS(e, &rec)
	})
	vfs.RegisterState(image.KindMqueue, func(e *vfs.RestoreEnv, id image.ID) (any, error) {
		var rec image.Mqueue
		if err := e.Get(image.KindMqueue, id, &rec); err != nil {
			return nil, err
		}
		fs, err := vfs.Restored[*FS](e, image.Ref{Kind: image.KindMqueueFS, ID: rec.FS})
		if err != nil {
			return nil, err
		}
		if q := fs.restored[id]; q != nil {
			return q, nil
		}
		q, err := fs.restoreQueue(e, &rec, 0)
		if err != nil {
			return nil, err
		}
		// The environment's reference: without a name others have to hold it.
		q.refs++
		e.Cleanup(q.DecRef)
		return q, nil
	})
}

func init() {
	// Read by restoreQueue: nothing else refers to them.
	vfs.RegisterState(image.KindMqueueMessages, func(_ *vfs.RestoreEnv, id image.ID) (any, error) {
		return nil, fmt.Errorf("messages %d of the image are no object", id)
	})
}

// maxQueues bounds the queues of an image.
const maxQueues = 1 << 20

func restoreFS(e *vfs.RestoreEnv, rec *image.MqueueFS) (*FS, error) {
	if len(rec.Queues) > maxQueues || len(rec.Limits) != 5 {
		return nil, fmt.Errorf("message queues %d of the image cannot be", rec.ID)
	}
	fs := newFS(e.Account, e.KeepDev(rec.Dev))
	fs.lastIno = rec.LastIno
	fs.rootSt.Mode, fs.rootSt.UID, fs.rootSt.GID = unix.S_IFDIR|rec.Mode&0o7777, rec.UID, rec.GID
	fs.rootSt.Size += 20 * uint64(len(rec.Queues))
	l := &fs.Limits
	l.QueuesMax.Store(rec.Limits[0])
	l.MsgMax.Store(rec.Limits[1])
	l.MsgSizeMax.Store(rec.Limits[2])
	l.MsgDefault.Store(rec.Limits[3])
	l.MsgSizeDefault.Store(rec.Limits[4])
	fs.restored = map[image.ID]*Queue{}
	for _, n := range rec.Queues {
		var qr image.Mqueue
		err := e.Get(image.KindMqueue, n.Queue, &qr)
		if err == nil && (qr.FS != rec.ID || fs.queues[n.Name] != nil || fs.restored[n.Queue] != nil || n.Name == "" || len(n.Name) > 255) {
			err = fmt.Errorf("message queue %q of the image has no name of its own", n.Name)
		}
		var q *Queue
		if err == nil {
			q, err = fs.restoreQueue(e, &qr, 1)
		}
		if err != nil {
			fs.Release()
			return nil, err
		}
		fs.queues[n.Name] = q
		fs.restored[n.Queue] = q
	}
	return fs, nil
}

// restoreQueue makes a queue without a reference to it.
func (fs *FS) restoreQueue(e *vfs.RestoreEnv, rec *image.Mqueue, nlink uint32) (*Queue, error) {
	q := &Queue{fs: fs, ino: rec.Ino, attr: Attr{rec.MaxMsg, rec.MsgSize}, owner: rec.Owner, st: vfs.Stat{
		Mask: unix.STATX_BASIC_STATS, Mode: unix.S_IFREG | rec.Mode&0o7777, UID: rec.UID, GID: rec.GID, Ino: rec.Ino, Nlink: nlink,
		Size: fileSize, BlockSize: 4096, Dev: fs.dev, Atime: vfs.RestoredTime(rec.Atime), Mtime: vfs.RestoredTime(rec.Mtime),
		Ctime: vfs.RestoredTime(rec.Ctime),
	}}
	bad := fmt.Errorf("message queue %d of the image cannot be", rec.ID)
	if a := q.attr; a.MaxMsg <= 0 || a.MaxMsg > hardMaxMsg || a.MsgSize <= 0 || a.MsgSize > hardMsgSize {
		return nil, bad
	}
	last := uint32(PrioMax)
	size := int64(0)
	for _, id := range rec.Messages {
		var part image.MqueueMessages
		if err := e.Get(image.KindMqueueMessages, id, &part); err != nil {
			return nil, err
		}
		for _, m := range part.Messages {
			if int64(len(q.messages)) >= q.attr.MaxMsg || int64(len(m.Data)) > q.attr.MsgSize || m.Prio >= PrioMax || m.Prio > last {
				return nil, bad
			}
			last = m.Prio
			size += int64(len(m.Data)) + messageCost
			q.messages = append(q.messages, message{m.Prio, m.Data})
		}
	}
	if err := fs.charge(size + queueCost); err != nil {
		return nil, err
	}
	q.bytes = size
	users.add(q.owner, q.attr.cost(), ^uint64(0))
	if rec.Target != 0 && rec.Signal >= 0 && rec.Signal <= 64 && e.Task != nil {
		e.Later(func() error {
			t, err := e.Task(rec.Target)
			if err != nil {
				return err
			}
			target, ok := t.(Target)
			if !ok {
				return bad
			}
			return q.Notify(target, rec.TGID, rec.Signal, rec.Value)
		})
	}
	return q, nil
}
