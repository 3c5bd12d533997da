package kernel

import (
	"sync"

	"runsc/sentry/image"
	"runsc/sentry/vfs"
)

// UTSNamespace holds host and domain name (uts_namespaces(7)).
type UTSNamespace struct {
	inode uint64 `save:"none: a new number"`

	mu sync.Mutex `save:"rebuilt"`
	// mu guards:
	host, domain string `save:"rec"`
	hostSet      bool   `save:"rec"` // by the guest
}

// NewUTSNamespace returns a namespace with the host name.
func (k *Kernel) NewUTSNamespace(host string) *UTSNamespace {
	return &UTSNamespace{inode: k.nextSerial.Add(1), host: host, domain: "(none)"}
}

func (k *Kernel) copyUTS(u *UTSNamespace) *UTSNamespace {
	host, domain := u.Names()
	return &UTSNamespace{inode: k.nextSerial.Add(1), host: host, domain: domain}
}

// Inode is the number shown by /proc/PID/ns/uts.
func (u *UTSNamespace) Inode() uint64 { return u.inode }

// Names returns host and domain name.
func (u *UTSNamespace) Names() (host, domain string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.host, u.domain
}

// SetHost sets the host name.
func (u *UTSNamespace) SetHost(s string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.host, u.hostSet = s, true
}

// SetDomain sets the NIS domain name.
func (u *UTSNamespace) SetDomain(s string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.domain = s
}

// IPCNamespace is the identity that SysV IPC and message queues hang on.
type IPCNamespace struct {
	inode uint64 `save:"none: a new number"`

	mu sync.Mutex `save:"none: not held at a stop"`
	// mu guards:
	queues MessageQueues `save:"rec"`
}

// MessageQueues is the file system of POSIX message queues, which hangs on an
// IPC namespace.
type MessageQueues interface {
	vfs.Filesystem
	// RootPath borrows the root in a mount of its own.
	RootPath() vfs.Path
	// KeepMount takes over that mount when the file system is restored.
	KeepMount(*vfs.Mount)
	// Empty tells whether there are no queues.
	Empty() bool
}

// Queues returns the message queues of the namespace, made by the first to
// ask for them.
func (i *IPCNamespace) Queues(make func() MessageQueues) MessageQueues {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.queues == nil {
		i.queues = make()
	}
	return i.queues
}

// saveIPC writes the record.
func (i *IPCNamespace) save(e *vfs.SaveEnv, id image.ID) error {
	rec := image.IPC{ID: id}
	i.mu.Lock()
	q := i.queues
	i.mu.Unlock()
	if q != nil {
		var err error
		if rec.Mqueue, err = vfs.SavePath(e, q.RootPath()); err != nil {
			return err
		}
	}
	return e.Put(image.KindIPC, &rec)
}

// restore takes what the record has. Queues that others of the namespace made
// meanwhile stay the namespace's.
func (i *IPCNamespace) restore(e *vfs.RestoreEnv, rec *image.IPC) error {
	p, err := vfs.RestorePath(e, rec.Mqueue)
	if err != nil || !p.Ok() {
		return err
	}
	defer p.Dentry.DecRef()
	q, ok := p.Mount.Filesystem().(MessageQueues)
	if !ok || !e.FirstTime(q) {
		p.Mount.DecRef()
		return bad("a namespace whose message queues are none")
	}
	q.KeepMount(p.Mount)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.queues == nil || i.queues.Empty() {
		i.queues = q
	}
	return nil
}

// NewIPCNamespace returns an empty namespace.
func (k *Kernel) NewIPCNamespace() *IPCNamespace {
	return &IPCNamespace{inode: k.nextSerial.Add(1)}
}

// Inode is the number shown by /proc/PID/ns/ipc.
func (i *IPCNamespace) Inode() uint64 { return i.inode }
