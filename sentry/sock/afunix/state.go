package afunix

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"runsc/sentry/image"
	"runsc/sentry/sock"
	"runsc/sentry/vfs"
)

// StateKind implements vfs.StateSaver.
func (s *Socket) StateKind() image.Kind { return image.KindUnixSocket }

// SaveState implements vfs.StateSaver. What the socket holds is saved now, the
// record comes last: a peer that nobody in the image has is gone there.
func (s *Socket) SaveState(e *vfs.SaveEnv, id image.ID) error {
	s.mu.Lock()
	inbox, pending, path := slices.Clone(s.inbox), slices.Clone(s.pending), s.path
	rec := image.UnixSocket{
		ID: id, Type: s.typ, State: uint8(s.state), EOF: s.eof, Err: int32(s.err), ShutRd: s.shutRd, ShutWr: s.shutWr,
		HasPeer: s.peer != nil, Gone: s.gone, Creds: sock.CredsRecord(s.creds), HasCreds: s.hasCred,
		Backlog: s.backlog, Addr: s.addr, Name: s.name,
	}
	s.mu.Unlock()
	rec.Options = s.opts.Record()
	for _, m := range inbox {
		x := image.UnixMessage{Data: m.data[m.off:], Creds: sock.CredsRecord(m.creds), From: m.from}
		for _, f := range m.files {
			file, err := vfs.SaveFile(e, f)
			if err != nil {
				return fmt.Errorf("a file in flight: %w", err)
			}
			x.Files = append(x.Files, file)
		}
		rec.Inbox = append(rec.Inbox, x)
	}
	for _, p := range pending {
		ref, err := e.Save(p)
		if err != nil {
			return err
		}
		rec.Pending = append(rec.Pending, ref.ID)
	}
	var err error
	if rec.Path, err = vfs.SavePath(e, path); err != nil {
		return err
	}
	e.Later(func() error {
		s.linkRecord(e, &rec)
		return e.Put(image.KindUnixSocket, &rec)
	})
	return nil
}

// linkRecord fills in what refers to sockets that may not be in the image.
func (s *Socket) linkRecord(e *vfs.SaveEnv, rec *image.UnixSocket) {
	s.mu.Lock()
	peer := s.peer
	var blocked []*Socket
	for b := range s.blocked {
		blocked = append(blocked, b)
	}
	s.mu.Unlock()
	for _, b := range blocked {
		if id := e.Known(b); id != 0 {
			rec.Blocked = append(rec.Blocked, id)
		}
	}
	slices.Sort(rec.Blocked)
	if peer == nil {
		return
	}
	if rec.Peer = e.Known(peer); rec.Peer != 0 {
		return
	}
	rec.PeerAddr = peer.LocalAddr()
	if s.typ == unix.SOCK_DGRAM || rec.Gone {
		return
	}
	rec.Gone, rec.EOF = true, true
	if peer.Pending() > 0 {
		rec.Err = int32(unix.ECONNRESET)
	}
}

func init() {
	vfs.RegisterState(image.KindUnixSocket, func(e *vfs.RestoreEnv, id image.ID) (any, error) {
		var rec image.UnixSocket
		if err := e.Get(image.KindUnixSocket, id, &rec); err != nil {
			return nil, err
		}
		return restore(e, &rec)
	})
}

func restore(e *vfs.RestoreEnv, rec *image.UnixSocket) (*Socket, error) {
	s, err := New(rec.Type)
	if err != nil || state(rec.State) >= closed || state(rec.State) != idle && s.typ == unix.SOCK_DGRAM ||
		state(rec.State) == connected && !rec.HasPeer || len(rec.Addr) > maxAddrLen || len(rec.PeerAddr) > maxAddrLen ||
		rec.Backlog < 0 || rec.Backlog > maxBacklog || rec.Err < 0 || rec.Err > 4095 {
		return nil, fmt.Errorf("socket %d of the image cannot be", rec.ID)
	}
	s.opts = sock.RestoreOptions(&rec.Options)
	s.state, s.eof, s.err, s.shutRd, s.shutWr = state(rec.State), rec.EOF, unix.Errno(rec.Err), rec.ShutRd, rec.ShutWr
	s.gone, s.creds, s.hasCred, s.backlog = rec.Gone, sock.RestoredCreds(rec.Creds), rec.HasCreds, rec.Backlog
	s.addr = rec.Addr
	if err := s.restoreName(e, rec); err != nil {
		return nil, err
	}
	e.Undo(s.Release)
	// Sockets refer to each other, also through files in their inboxes.
	e.Later(func() error { return s.link(e, rec) })
	return s, nil
}

// restoreName enters the socket where others find it.
func (s *Socket) restoreName(e *vfs.RestoreEnv, rec *image.UnixSocket) error {
	if err := e.WhenReachable(rec.Path, func() error { return s.restorePath(e, rec) }); err != nil {
		return err
	}
	names.mu.Lock()
	defer names.mu.Unlock()
	if rec.Name != "" {
		if names.abstract[rec.Name] != nil {
			return fmt.Errorf("the abstract socket address %q is in use in this sandbox", rec.Name)
		}
		if names.abstract == nil {
			names.abstract = make(map[string]*Socket)
		}
		names.abstract[rec.Name], s.name = s, rec.Name
	}
	return nil
}

// restorePath gives the socket the node that it is bound to.
func (s *Socket) restorePath(e *vfs.RestoreEnv, rec *image.UnixSocket) error {
	path, err := vfs.RestorePath(e, rec.Path)
	if err != nil || !path.Ok() {
		return err
	}
	if err := s.bindHost(path); err != nil {
		path.DecRef()
		return err
	}
	if s.hostEnd != nil && s.state == listening {
		if err := s.listenHost(s.hostEnd, s.backlog); err != nil {
			path.DecRef()
			return err
		}
	}
	names.mu.Lock()
	defer names.mu.Unlock()
	s.path = path
	if names.nodes == nil {
		names.nodes = make(map[any]*Socket)
	}
	if names.nodes[vfs.Node(path.Inode())] == nil {
		names.nodes[vfs.Node(path.Inode())] = s
	}
	return nil
}

// link connects the socket to its peer and fills its inbox.
func (s *Socket) link(e *vfs.RestoreEnv, rec *image.UnixSocket) error {
	other := func(id image.ID) (*Socket, error) {
		o, err := vfs.Restored[*Socket](e, image.Ref{Kind: image.KindUnixSocket, ID: id})
		if err == nil && o.typ != s.typ {
			err = fmt.Errorf("sockets %d and %d of the image are of different types", rec.ID, id)
		}
		return o, err
	}
	var peer *Socket
	var err error
	switch {
	case rec.Peer != 0:
		if peer, err = other(rec.Peer); err != nil {
			return err
		}
	case rec.HasPeer:
		peer = &Socket{typ: s.typ, opts: sock.NewOptions(), state: closed, addr: rec.PeerAddr}
	}
	s.mu.Lock()
	s.peer = peer
	s.mu.Unlock()
	for _, id := range rec.Pending {
		p, err := other(id)
		if err != nil {
			return err
		}
		if !e.FirstTime(pendingKey{p}) || s.state != listening || p.state != connected {
			return fmt.Errorf("socket %d of the image waits at two listeners", id)
		}
		s.mu.Lock()
		s.pending = append(s.pending, p)
		s.mu.Unlock()
	}
	for _, id := range rec.Blocked {
		b, err := other(id)
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.blockLocked(b)
		s.mu.Unlock()
	}
	for i := range rec.Inbox {
		if err := s.restoreMessage(e, &rec.Inbox[i]); err != nil {
			return fmt.Errorf("message %d of socket %d of the image: %w", i, rec.ID, err)
		}
	}
	s.notify()
	return nil
}

type pendingKey struct{ s *Socket }

func (s *Socket) restoreMessage(e *vfs.RestoreEnv, rec *image.UnixMessage) error {
	if len(rec.From) > maxAddrLen {
		return unix.EINVAL
	}
	m := &message{data: rec.Data, creds: sock.RestoredCreds(rec.Creds), from: rec.From}
	for _, id := range rec.Files {
		f, err := vfs.RestoreFile(e, id)
		if err != nil {
			dropFiles(m.files)
			return err
		}
		m.files = append(m.files, f)
	}
	flightMu.Lock()
	defer flightMu.Unlock()
	if err := mayFlyLocked(m.files); err != nil {
		dropFiles(m.files)
		return err
	}
	launchLocked(m.files)
	s.mu.Lock()
	s.pushLocked(m)
	s.mu.Unlock()
	return nil
}
