package boot

import (
	"golang.org/x/sys/unix"

	"runsc/sentry/fs/cgroup"
	"runsc/sentry/fs/dev"
	"runsc/sentry/fs/fuse"
	"runsc/sentry/fs/overlay"
	"runsc/sentry/fs/pseudo"
	"runsc/sentry/fs/sys"
	"runsc/sentry/fs/tmpfs"
	"runsc/sentry/kernel"
	"runsc/sentry/mem"
	"runsc/sentry/pipe"
	"runsc/sentry/syscalls"
	"runsc/sentry/vfs"
)

// emptyRoot is the root of file systems that show no files yet.
type emptyRoot = pseudo.TreeDir[struct{}]

// pseudoFS makes a file system that shows the Sentry's own state to container
// c. ENODEV if the type is unknown.
func (s *Sentry) pseudoFS(c *container, typ, source, data string) (vfs.Filesystem, error) {
	switch typ {
	case "proc":
		return s.proc.New(c.kernel, source, data)
	case "sysfs":
		return sys.New(sys.Options{NumCPUs: s.kernel.NumCPUs(), MemTotal: c.memTotal, Source: source}), nil
	case "devpts":
		return pseudo.New(pseudo.Options{
			Type: "devpts", Magic: unix.DEVPTS_SUPER_MAGIC, Root: emptyRoot{Perm: 0o755},
			Source: source, MountOptions: data, CreateError: unix.EACCES, MkdirError: unix.EPERM,
		}), nil
	case "mqueue":
		return pseudo.New(pseudo.Options{
			Type: "mqueue", Magic: mqueueMagic, Root: emptyRoot{Perm: 0o1777},
			Source: source, MountOptions: data, CreateError: unix.ENOSYS, MkdirError: unix.EPERM,
		}), nil
	case "cgroup2":
		o := cgroup.Options{Container: c.kernel, Source: source, MountOptions: data}
		if l := c.spec.Linux; l != nil && l.Resources != nil && l.Resources.CPU != nil {
			if q := l.Resources.CPU.Quota; q != nil {
				o.CPUQuota = *q
			}
			if p := l.Resources.CPU.Period; p != nil {
				o.CPUPeriod = int64(*p)
			}
		}
		return cgroup.New(o), nil
	}
	return nil, unix.ENODEV
}

// mqueueMagic is MQUEUE_MAGIC of ipc/mqueue.c.
const mqueueMagic = 0x19800202

// memTotal is the memory the container may use, in bytes.
func (c *container) memTotal() uint64 {
	if n := c.account.Limit(); n != 0 {
		return n
	}
	return hostMemory()
}

func hostMemory() uint64 {
	var si unix.Sysinfo_t
	if err := unix.Sysinfo(&si); err != nil {
		return 0
	}
	return si.Totalram * uint64(si.Unit)
}

// filesInMemory makes files without a name, charged to the caller's container,
// for the mapped files of a FUSE file system.
func (s *Sentry) filesInMemory(c vfs.Caller) func(vfs.Caller) vfs.Inode {
	conf := tmpfs.Config{Memory: s.memory, Source: "fuse"}
	if t, ok := c.(*kernel.Task); ok {
		conf.Account = t.Container().Account()
	}
	fs := tmpfs.New(c, conf)
	return func(c vfs.Caller) vfs.Inode { return fs.NewMemfd(c, 0o600) }
}

// registerTypes makes devices, fifos and the file systems that mount(2) may
// make known to vfs.
func (s *Sentry) registerTypes() {
	dev.Register()
	pipe.Register()
	s.proc.Register()
	vfs.RegisterFSType(overlay.FSType())
	fuse.Register(s.filesInMemory)
	vfs.RegisterFSType(vfs.FSType{
		Name: "mqueue", NoDev: true,
		New: func(c vfs.Caller, _, _ string, _ vfs.MountFlags) (vfs.Filesystem, error) {
			t, ok := c.(*kernel.Task)
			if !ok {
				return nil, unix.ENODEV
			}
			return syscalls.Queues(t.IPC(), t.Container()).View(), nil
		},
	})
	vfs.RegisterFSType(tmpfs.FSType(s.memory, func(c vfs.Caller) *mem.Account {
		if t, ok := c.(*kernel.Task); ok {
			return t.Container().Account()
		}
		return nil
	}))
}
