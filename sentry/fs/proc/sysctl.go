package proc

import (
	"bytes"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"runsc/sentry/fs/pseudo"
	"runsc/sentry/vfs"
)

// Sysctls are the values of /proc/sys that were written in a container. The
// names are those of sysctlTable, so that there are few.
type Sysctls struct {
	mu sync.Mutex
	// mu guards:
	values map[string]string
}

// Get returns the value of a path such as "kernel/shmmax", "" if it is not
// known or computed.
func (s *Sysctls) Get(path string) string {
	s.mu.Lock()
	v, ok := s.values[path]
	s.mu.Unlock()
	if ok {
		return v
	}
	for i := range sysctlTable {
		if sysctlTable[i].path == path {
			return sysctlTable[i].value
		}
	}
	return ""
}

func (s *Sysctls) set(path, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.values == nil {
		s.values = map[string]string{}
	}
	s.values[path] = value
}

// sysctl is a file below /proc/sys.
type sysctl struct {
	path string
	perm uint32
	// value is what it starts with; values of several numbers are separated
	// by tabs.
	value string
	// numbers is how many integers a new value must have, each in
	// [min, max]; 0 means any text.
	numbers  int
	min, max int64
	// get and set, if there, replace the stored value.
	get func(in *instance, c vfs.Caller) string
	set func(in *instance, c vfs.Caller, value string) error
}

// sysctlTree is sysctlTable as a directory tree.
var sysctlTree pseudo.Tree[*instance]

func init() {
	for i := range sysctlTable {
		k := &sysctlTable[i]
		sysctlTree = append(sysctlTree, pseudo.TreeEntry[*instance]{
			Path: k.path, Type: unix.DT_REG,
			Make: func(in *instance) pseudo.Node { return sysctlNode{in, k} },
		})
	}
}

// sysctlNode is a sysctl in a mount.
type sysctlNode struct {
	in *instance
	*sysctl
}

// Info implements pseudo.Node.
func (n sysctlNode) Info(vfs.Caller) (pseudo.Info, error) {
	return pseudo.Info{Mode: unix.S_IFREG | n.perm}, nil
}

// Read implements pseudo.Reader.
func (n sysctlNode) Read(c vfs.Caller, b *bytes.Buffer) error {
	if n.perm&0o444 == 0 {
		return unix.EACCES
	}
	if n.get != nil {
		b.WriteString(n.get(n.in, c))
	} else {
		b.WriteString(n.in.sysctls.Get(n.path))
	}
	b.WriteByte('\n')
	return nil
}

// Write implements pseudo.Writer.
func (n sysctlNode) Write(c vfs.Caller, data []byte) (int, error) {
	if n.perm&0o222 == 0 {
		return 0, unix.EPERM
	}
	value := string(data)
	if z := strings.IndexByte(value, 0); z >= 0 {
		value = value[:z]
	}
	value = strings.TrimRight(value, " \t\n")
	if n.numbers > 0 {
		fields := strings.Fields(value)
		if len(fields) == 0 || len(fields) > n.numbers {
			return 0, unix.EINVAL
		}
		// As proc_dointvec: fewer numbers leave the rest as it is.
		old := strings.Fields(n.in.sysctls.Get(n.path))
		for i, f := range fields {
			v, err := strconv.ParseInt(f, 0, 64)
			if err != nil || v < n.min || v > n.max {
				return 0, unix.EINVAL
			}
			if i < len(old) {
				old[i] = strconv.FormatInt(v, 10)
			} else {
				old = append(old, strconv.FormatInt(v, 10))
			}
		}
		value = strings.Join(old, "\t")
	} else if value = firstLine(value); len(value) > maxSysctlText {
		return 0, unix.EINVAL
	}
	if n.set != nil {
		if err := n.set(n.in, c, value); err != nil {
			return 0, err
		}
	} else {
		n.in.sysctls.set(n.path, value)
	}
	return len(data), nil
}

const maxSysctlText = 4096

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}
