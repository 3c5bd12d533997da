package proc

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"runsc/sentry/fs/pseudo"
	"runsc/sentry/kernel"
	"runsc/sentry/vfs"
)

// System is what all proc mounts of a sandbox share.
type System struct {
	// immutable
	k          *kernel.Kernel
	procSelfFD int
	bootID     string
	load       loadAverage

	mu sync.Mutex
	// mu guards:
	sysctls map[*kernel.Container]*Sysctls
}

// NewSystem returns the System of a kernel. procSelfFD is a descriptor of the
// Sentry's own /proc/self/fd, through which the CPU's description is read, or
// -1.
func NewSystem(k *kernel.Kernel, procSelfFD int) *System {
	return &System{k: k, procSelfFD: procSelfFD, bootID: newUUID(), sysctls: map[*kernel.Container]*Sysctls{}}
}

// Register makes "proc" known to mount(2).
func (s *System) Register() {
	vfs.RegisterFSType(vfs.FSType{Name: "proc", NoDev: true, New: func(c vfs.Caller, source, options string, _ vfs.MountFlags) (vfs.Filesystem, error) {
		t, ok := c.(*kernel.Task)
		if !ok {
			return nil, unix.EPERM
		}
		return s.newFS(t.Container(), t.PIDNamespace(), source, options)
	}})
}

// New returns the file system for a container, showing its pid namespace.
// Options are those of mount(8): hidepid, gid, subset.
func (s *System) New(c *kernel.Container, source, options string) (vfs.Filesystem, error) {
	return s.newFS(c, c.PIDNamespace(), source, options)
}

func (s *System) newFS(c *kernel.Container, ns *kernel.PIDNamespace, source, options string) (*pseudo.FS, error) {
	in := &instance{sys: s, k: s.k, container: c, ns: ns, sysctls: s.Sysctls(c)}
	if err := in.parse(options); err != nil {
		return nil, err
	}
	in.fs = pseudo.New(pseudo.Options{
		Type: "proc", Magic: unix.PROC_SUPER_MAGIC, Root: root{in},
		Source: source, MountOptions: in.options(), BlockSize: 1024,
		CreateError: unix.ENOENT, MkdirError: unix.ENOENT, Settings: in,
	})
	return in.fs, nil
}

// Sysctls returns the settings of a container.
func (s *System) Sysctls(c *kernel.Container) *Sysctls {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.sysctls[c]
	if x == nil {
		x = &Sysctls{bootID: s.bootID}
		s.sysctls[c] = x
	}
	return x
}

// Forget drops the settings of a container that is gone.
func (s *System) Forget(c *kernel.Container) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sysctls, c)
}

// Values of hidepid.
const (
	hideNothing = iota
	hideContents
	hideInvisible
	hidePtraceable = 4
)

// instance is one proc mount.
type instance struct {
	// immutable
	sys       *System
	k         *kernel.Kernel
	fs        *pseudo.FS
	container *kernel.Container
	ns        *kernel.PIDNamespace
	sysctls   *Sysctls
	hidepid   int
	gid       uint32 // sees everything whatever hidepid says
	onlyPids  bool   // subset=pid
}

func (in *instance) parse(options string) error {
	for _, o := range strings.Split(options, ",") {
		key, val, _ := strings.Cut(o, "=")
		switch key {
		case "":
		case "hidepid":
			n, ok := map[string]int{
				"0": hideNothing, "off": hideNothing, "1": hideContents, "noaccess": hideContents,
				"2": hideInvisible, "invisible": hideInvisible, "4": hidePtraceable, "ptraceable": hidePtraceable,
			}[val]
			if !ok {
				return unix.EINVAL
			}
			in.hidepid = n
		case "gid":
			n, err := strconv.ParseUint(val, 10, 32)
			if err != nil {
				return unix.EINVAL
			}
			in.gid = uint32(n)
		case "subset":
			if val != "pid" {
				return unix.EINVAL
			}
			in.onlyPids = true
		default:
			return unix.EINVAL
		}
	}
	return nil
}

func (in *instance) options() string {
	var o []string
	if in.gid != 0 {
		o = append(o, fmt.Sprint("gid=", in.gid))
	}
	if name := map[int]string{hideContents: "noaccess", hideInvisible: "invisible", hidePtraceable: "ptraceable"}[in.hidepid]; name != "" {
		o = append(o, "hidepid="+name)
	}
	if in.onlyPids {
		o = append(o, "subset=pid")
	}
	return strings.Join(o, ",")
}

// newUUID returns a random UUID (RFC 9562, version 4).
func newUUID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}
