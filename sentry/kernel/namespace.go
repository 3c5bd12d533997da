package kernel

import "sync"

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
}

// NewIPCNamespace returns an empty namespace.
func (k *Kernel) NewIPCNamespace() *IPCNamespace {
	return &IPCNamespace{inode: k.nextSerial.Add(1)}
}

// Inode is the number shown by /proc/PID/ns/ipc.
func (i *IPCNamespace) Inode() uint64 { return i.inode }
