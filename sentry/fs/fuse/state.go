package fuse

import (
	"fmt"
	"sort"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"runsc/sentry/image"
	"runsc/sentry/vfs"
)

// StateKind implements vfs.StateSaver.
func (fs *FS) StateKind() image.Kind { return image.KindFuse }

// SaveState implements vfs.StateSaver.
func (fs *FS) SaveState(e *vfs.SaveEnv, id image.ID) error {
	rec := image.Fuse{ID: id, Source: fs.source, Subtype: fs.subtype, Options: fs.shown, Dev: fs.dev, User: fs.user, Group: fs.group,
		MaxRead: fs.maxRead, Permissions: fs.permissions, Others: fs.others}
	ref, err := e.Save(fs.conn)
	if err != nil {
		return err
	}
	rec.Conn = ref.ID
	for _, i := range fs.listed() {
		ref, err := e.Save(i.outer())
		if err != nil {
			return err
		}
		rec.Inodes = append(rec.Inodes, ref.ID)
	}
	return e.Put(image.KindFuse, &rec)
}

// listed returns the inodes in use, the root first.
func (fs *FS) listed() []*inode {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	list := make([]*inode, 0, len(fs.inodes))
	for _, i := range fs.inodes {
		list = append(list, i)
	}
	sort.Slice(list, func(a, b int) bool {
		if (list[a] == fs.root) != (list[b] == fs.root) {
			return list[a] == fs.root
		}
		return list[a].node < list[b].node
	})
	return list
}

// StateKind implements vfs.StateSaver.
func (i *inode) StateKind() image.Kind { return image.KindFuseInode }

// SaveState implements vfs.StateSaver. In the image an inode is known by the value
// that vfs has of it (outer).
func (i *inode) SaveState(e *vfs.SaveEnv, id image.ID) error {
	fs, err := e.Save(i.fs)
	if err != nil {
		return err
	}
	rec := image.FuseInode{ID: id, FS: fs.ID, Node: i.node, Generation: i.generation}
	i.fs.mu.Lock()
	rec.Lookups, rec.Parent, rec.Name, rec.Listed = i.lookups, i.parent, i.name, i.fs.inodes[i.node] == i
	i.fs.mu.Unlock()
	i.mu.Lock()
	rec.Mode, rec.Owner, rec.Group, rec.Ino, rec.Size = i.typ|i.attr.Mode&0o7777, i.attr.UID, i.attr.GID, i.attr.Ino, i.attr.Size
	p := i.pages
	if p != nil && p.maps[true]+p.maps[false] == 0 {
		p = nil
	}
	if p != nil {
		rec.Handle = p.fh
	}
	i.mu.Unlock()
	if p != nil {
		if rec.Pages, err = e.Save(p.file); err != nil {
			return err
		}
	}
	return e.Put(image.KindFuseInode, &rec)
}

// StateKind implements vfs.StateSaver.
func (cn *conn) StateKind() image.Kind { return image.KindFuseConn }

// SaveState implements vfs.StateSaver. No task waits at a save: who did has left its request
// among the orphans.
func (cn *conn) SaveState(e *vfs.SaveEnv, id image.ID) error {
	ref, err := e.Save(cn.fs)
	if err != nil {
		return err
	}
	cn.mu.Lock()
	rec := image.FuseConn{ID: id, FS: ref.ID, State: uint8(cn.state), LastUnique: cn.lastUnique, Flags: cn.flags, Minor: cn.minor, MaxWrite: cn.maxWrite}
	for op, m := range cn.missing {
		if m {
			rec.Missing = append(rec.Missing, uint32(op))
		}
	}
	tell := map[*request]bool{}
	for _, r := range cn.interrupts {
		tell[r] = true
	}
	add := func(r *request) {
		rec.Requests = append(rec.Requests, image.FuseRequest{Unique: r.unique, Data: r.data, State: uint8(r.state), Least: int64(r.least), Most: int64(r.most),
			Waited: r.waited, Interrupted: r.interrupted, Interrupt: tell[r], Reply: r.reply, Error: uint32(r.err)})
	}
	for _, r := range cn.pending {
		add(r)
	}
	var sent []*request
	for _, r := range cn.sent {
		sent = append(sent, r)
	}
	sort.Slice(sent, func(a, b int) bool { return sent[a].unique < sent[b].unique })
	for _, r := range sent {
		add(r)
	}
	for _, r := range cn.orphans {
		if r.state == reqDone {
			add(r)
		}
	}
	for _, f := range cn.forgets {
		rec.Forgets = append(rec.Forgets, f.node, f.count)
	}
	cn.mu.Unlock()
	return e.Put(image.KindFuseConn, &rec)
}

// StateKind implements vfs.StateSaver.
func (d *device) StateKind() image.Kind { return image.KindFuseDevice }

// SaveState implements vfs.StateSaver.
func (d *device) SaveState(e *vfs.SaveEnv, id image.ID) error {
	rec := image.FuseDevice{ID: id}
	if cn := d.conn.Load(); cn != nil {
		ref, err := e.Save(cn)
		if err != nil {
			return err
		}
		rec.Conn = ref.ID
	}
	return e.Put(image.KindFuseDevice, &rec)
}

// StateKind implements vfs.StateSaver.
func (h *handle) StateKind() image.Kind { return image.KindFuseFile }

func (h *handle) save(e *vfs.SaveEnv, id image.ID, opened uint32) error {
	ref, err := e.Save(h.i.outer())
	if err != nil {
		return err
	}
	return e.Put(image.KindFuseFile, &image.FuseFile{ID: id, Inode: ref.ID, Handle: h.fh, Flags: h.flags, None: h.none, Opened: opened})
}

// SaveState implements vfs.StateSaver.
func (o *fileOps) SaveState(e *vfs.SaveEnv, id image.ID) error { return o.save(e, id, o.opened) }

// SaveState implements vfs.StateSaver.
func (o *dirOps) SaveState(e *vfs.SaveEnv, id image.ID) error { return o.save(e, id, 0) }

func init() {
	vfs.RegisterState(image.KindFuse, func(e *vfs.RestoreEnv, id image.ID) (any, error) {
		var rec image.Fuse
		if err := e.Get(image.KindFuse, id, &rec); err != nil {
			return nil, err
		}
		return restoreFS(e, &rec)
	})
	vfs.RegisterState(image.KindFuseInode, func(e *vfs.RestoreEnv, id image.ID) (any, error) {
		i, err := restoredInode(e, id)
		if err != nil {
			return nil, err
		}
		return i.outer(), nil
	})
	vfs.RegisterState(image.KindFuseConn, func(e *vfs.RestoreEnv, id image.ID) (any, error) {
		var rec image.FuseConn
		if err := e.Get(image.KindFuseConn, id, &rec); err != nil {
			return nil, err
		}
		fs, err := vfs.Restored[*FS](e, image.Ref{Kind: image.KindFuse, ID: rec.FS})
		if err != nil {
			return nil, err
		}
		return fs.conn, nil
	})
	vfs.RegisterState(image.KindFuseDevice, func(e *vfs.RestoreEnv, id image.ID) (any, error) {
		var rec image.FuseDevice
		if err := e.Get(image.KindFuseDevice, id, &rec); err != nil {
			return nil, err
		}
		d := &device{}
		if rec.Conn == 0 {
			return d, nil
		}
		cn, err := vfs.Restored[*conn](e, image.Ref{Kind: image.KindFuseConn, ID: rec.Conn})
		if err != nil {
			return nil, err
		}
		return d, d.attach(cn)
	})
	vfs.RegisterState(image.KindFuseFile, func(e *vfs.RestoreEnv, id image.ID) (any, error) {
		var rec image.FuseFile
		if err := e.Get(image.KindFuseFile, id, &rec); err != nil {
			return nil, err
		}
		i, err := restoredInode(e, rec.Inode)
		if err != nil {
			return nil, err
		}
		h := handle{i: i, fh: rec.Handle, flags: rec.Flags, none: rec.None}
		switch i.typ {
		case unix.S_IFREG:
			i.IncRef()
			return &fileOps{h, rec.Opened}, nil
		case unix.S_IFDIR:
			i.IncRef()
			return &dirOps{h}, nil
		}
		return nil, fmt.Errorf("file %d of the image is open, and no file or directory", id)
	})
}

// restoredInode borrows an inode.
func restoredInode(e *vfs.RestoreEnv, id image.ID) (*inode, error) {
	var rec image.FuseInode
	if err := e.Get(image.KindFuseInode, id, &rec); err != nil {
		return nil, err
	}
	fs, err := vfs.Restored[*FS](e, image.Ref{Kind: image.KindFuse, ID: rec.FS})
	if err != nil {
		return nil, err
	}
	if i := fs.restored[id]; i != nil {
		return i, nil
	}
	return fs.restoreInode(e, &rec)
}

// restoreInode makes an inode; the environment has its reference.
func (fs *FS) restoreInode(e *vfs.RestoreEnv, rec *image.FuseInode) (*inode, error) {
	if rec.Node == 0 || len(rec.Name) > 255 || strings.Contains(rec.Name, "/") || rec.Size > 1<<63-1 {
		return nil, fmt.Errorf("file %d of the image cannot be", rec.ID)
	}
	i := fs.newInode(rec.Node, rec.Mode)
	i.generation, i.lookups, i.parent, i.name = rec.Generation, rec.Lookups, rec.Parent, rec.Name
	i.attr = vfs.Stat{Mode: rec.Mode, UID: rec.Owner, GID: rec.Group, Ino: rec.Ino, Size: rec.Size, Nlink: 1, Dev: fs.dev}
	fs.restored[rec.ID] = i
	e.Cleanup(i.DecRef)
	if rec.Listed {
		if fs.inodes[rec.Node] != nil {
			return nil, fmt.Errorf("the image has node %d of a file system twice", rec.Node)
		}
		fs.inodes[rec.Node] = i
	}
	if rec.Pages.ID != 0 {
		file, err := e.RestoreInode(rec.Pages)
		if err != nil {
			return nil, err
		}
		p, err := newPages(e.Caller, file)
		if err != nil {
			file.DecRef()
			return nil, fmt.Errorf("the pages of file %d of the image: %w", rec.ID, err)
		}
		p.fh = rec.Handle
		i.pages = p
	}
	return i, nil
}

// restoreFS makes the file system with its connection and inodes.
func restoreFS(e *vfs.RestoreEnv, rec *image.Fuse) (*FS, error) {
	var crec image.FuseConn
	if err := e.Get(image.KindFuseConn, rec.Conn, &crec); err != nil {
		return nil, err
	}
	cn, err := restoreConn(&crec)
	if err != nil {
		return nil, err
	}
	fs := &FS{conn: cn, source: rec.Source, subtype: rec.Subtype, dev: e.KeepDev(rec.Dev), user: rec.User, group: rec.Group, maxRead: rec.MaxRead,
		permissions: rec.Permissions, others: rec.Others, shown: rec.Options,
		inodes: map[uint64]*inode{}, restoring: true, restored: map[image.ID]*inode{}}
	cn.fs = fs
	// The server is told of nothing before it runs again.
	e.Cleanup(func() {
		fs.mu.Lock()
		fs.restoring, fs.restored = false, nil
		fs.mu.Unlock()
	})
	for k, id := range rec.Inodes {
		var irec image.FuseInode
		if err := e.Get(image.KindFuseInode, id, &irec); err != nil {
			return nil, err
		}
		if fs.restored[id] != nil || (irec.Node == rootID) != (k == 0) || !irec.Listed {
			return nil, fmt.Errorf("file system %d of the image has a wrong list of files", rec.ID)
		}
		i, err := fs.restoreInode(e, &irec)
		if err != nil {
			return nil, err
		}
		if k == 0 {
			fs.root = i
		}
	}
	if fs.root == nil || fs.root.typ != unix.S_IFDIR {
		return nil, fmt.Errorf("file system %d of the image has no root", rec.ID)
	}
	fs.root.IncRef() // Release drops it
	return fs, nil
}

func restoreConn(rec *image.FuseConn) (*conn, error) {
	cn := newConn()
	cn.lastUnique, cn.flags, cn.minor, cn.maxWrite = rec.LastUnique&^1, rec.Flags, rec.Minor, min(max(rec.MaxWrite, 4096), maxData)
	if rec.State > connClosed || len(rec.Forgets)%2 != 0 {
		return nil, fmt.Errorf("FUSE connection %d of the image cannot be", rec.ID)
	}
	cn.state = int(rec.State)
	for _, op := range rec.Missing {
		if op < numOps {
			cn.missing[op] = true
		}
	}
	for i := 0; i < len(rec.Forgets); i += 2 {
		cn.forgets = append(cn.forgets, forget{rec.Forgets[i], rec.Forgets[i+1]})
	}
	for _, q := range rec.Requests {
		if len(q.Data) < inHeader || int(u32(q.Data, 0)) != len(q.Data) || u32(q.Data, 4) >= numOps || q.Unique != u64(q.Data, 8) ||
			q.Unique == 0 || q.Unique&1 != 0 || q.State > reqDone || q.Least < 0 || q.Most < q.Least || q.Most > maxReply ||
			q.State == reqDone && q.Error == 0 && (int64(len(q.Reply)) < q.Least || int64(len(q.Reply)) > q.Most) {
			return nil, fmt.Errorf("request %d of FUSE connection %d of the image cannot be", q.Unique, rec.ID)
		}
		r := &request{unique: q.Unique, data: q.Data, least: int(q.Least), most: int(q.Most), state: int(q.State), waited: q.Waited,
			interrupted: q.Interrupted, reply: q.Reply, err: unix.Errno(q.Error), left: time.Now()}
		if r.op() == opInit {
			r.then = cn.initDone
		} else if !r.waited && r.state != reqDone {
			r.posted = true
			cn.posted += len(r.data)
		}
		cn.lastUnique = max(cn.lastUnique, q.Unique)
		switch r.state {
		case reqPending:
			cn.pending = append(cn.pending, r)
		case reqSent:
			cn.sent[r.unique] = r
			if q.Interrupt {
				cn.interrupts = append(cn.interrupts, r)
			}
		}
		if q.Waited {
			cn.orphans = append(cn.orphans, r)
		}
	}
	return cn, nil
}
