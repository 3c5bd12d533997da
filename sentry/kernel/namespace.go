package kernel

import (
	"sync"

	"runsc/sentry/image"
	"runsc/sentry/mem"
	"runsc/sentry/sysvipc"
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
	k     *Kernel `save:"rebuilt"`
	inode uint64  `save:"none: a new number"`

	mu sync.Mutex `save:"none: not held at a stop"`
	// mu guards:
	queues MessageQueues      `save:"rec"`
	sysv   *sysvipc.Namespace `save:"rec"`
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

// SysV returns the System V objects of the namespace. The kernel knows
// namespaces that may have some, to let these go when the namespace has no
// users any more.
func (i *IPCNamespace) SysV() *sysvipc.Namespace {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.sysv == nil {
		i.sysv = sysvipc.New()
		i.k.ipcs.Store(i, nil)
	}
	return i.sysv
}

// sweepIPC ends System V objects of namespaces that have no users any more.
// Callers hold no lock.
func (k *Kernel) sweepIPC() {
	var unused []*IPCNamespace
	k.ipcs.Range(func(i, _ any) bool {
		unused = append(unused, i.(*IPCNamespace))
		return true
	})
	if len(unused) == 0 {
		return
	}
	used := map[*IPCNamespace]bool{}
	var tasks []*Task
	k.mu.Lock()
	for _, c := range k.containers {
		used[c.ipc] = true
		for t := range c.tasks {
			tasks = append(tasks, t)
		}
	}
	k.mu.Unlock()
	for _, t := range tasks {
		used[t.IPC()] = true
	}
	for _, i := range unused {
		if !used[i] {
			k.ipcs.Delete(i)
			i.SysV().Release()
			k.ipcs.Delete(i)
		}
	}
}

// leftOutUndos are the undo lists of processes that no image has.
func (k *Kernel) leftOutUndos() map[*sysvipc.Undo]bool {
	left := map[*sysvipc.Undo]bool{}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.containers {
		for t := range c.tasks {
			if t.tg.execBorn {
				left[&t.tg.semUndo] = true
			}
		}
	}
	return left
}

// save writes the record.
func (i *IPCNamespace) save(e *SaveEnv, id image.ID) error {
	rec := image.IPC{ID: id}
	i.mu.Lock()
	q, sysv := i.queues, i.sysv
	i.mu.Unlock()
	if sysv != nil {
		var err error
		rec.SysV, err = sysv.Save(&sysvipc.SaveEnv{Saver: e.Saver, MM: e.MM, Ended: i.k.leftOutUndos()})
		if err != nil {
			return err
		}
	}
	if q != nil {
		var err error
		if rec.Mqueue, err = vfs.SavePath(e.SaveEnv, q.RootPath()); err != nil {
			return err
		}
	}
	return e.Put(image.KindIPC, &rec)
}

// restore takes what the record has. Queues that others of the namespace made
// meanwhile stay the namespace's.
func (i *IPCNamespace) restore(e *RestoreEnv, rec *image.IPC, acct *mem.Account) error {
	if rec.SysV != 0 {
		if err := i.SysV().Restore(&sysvipc.RestoreEnv{Restorer: e.Restorer, MM: e.MM, Account: acct}, rec.SysV); err != nil {
			return err
		}
	}
	p, err := vfs.RestorePath(e.RestoreEnv, rec.Mqueue)
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
	return &IPCNamespace{k: k, inode: k.nextSerial.Add(1)}
}

// Inode is the number shown by /proc/PID/ns/ipc.
func (i *IPCNamespace) Inode() uint64 { return i.inode }
