package proc

import (
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
	bootID string
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
	// numbers is how many integers the value has, each in [min, max]; 0 means
	// any text.
	numbers  int
	min, max int64
	// long: the numbers are unsigned longs, of which negative ones are passed
	// over (proc_doulongvec_minmax).
	long bool
	// textMax is the most bytes that a text may have; 0 is maxSysctlText.
	textMax int
	// apply makes a stored value count.
	apply func(in *instance, v []int64)
	// round, if there, changes a number before it is stored; 0 is EINVAL.
	round func(v int64) int64
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

// current is the value as it is shown, without the newline.
func (n sysctlNode) current(c vfs.Caller) string {
	if n.get != nil {
		return n.get(n.in, c)
	}
	return n.in.sysctls.Get(n.path)
}

// Open implements pseudo.Opener.
func (n sysctlNode) Open(vfs.Caller, uint32) (vfs.FileOps, error) { return sysctlFile{n}, nil }

// put stores a value and makes it count.
func (n sysctlNode) put(c vfs.Caller, value string) error {
	if n.set != nil {
		return n.set(n.in, c, value)
	}
	n.in.sysctls.set(n.path, value)
	if n.apply != nil {
		n.apply(n.in, parseInts(value))
	}
	return nil
}

// parseInts reads the numbers of a value that was checked.
func parseInts(value string) []int64 {
	var list []int64
	for _, f := range strings.Fields(value) {
		v, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			v = maxLong // beyond a long
		}
		list = append(list, v)
	}
	return list
}
