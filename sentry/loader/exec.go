package loader

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/cpufeature"
	"runsc/sentry/mem"
)

// Executable is an open file that may be executed. The opener has checked
// type and permissions.
type Executable interface {
	// ReadAtKernel reads like pread(2); it returns a short count only at the
	// end of the file.
	ReadAtKernel(p []byte, off int64) (int, error)
	// Mappable returns the file's mappings; mappings take their own references.
	Mappable() (mem.Mappable, error)
	// Path is the name that it was opened by.
	Path() string
	// Release closes the file.
	Release()
}

// Opener opens an interpreter by path for the process that calls execve.
type Opener func(path string) (Executable, error)

// VDSO is what the loader and the kernel need of the vDSO; *vdso.Image
// implements it.
type VDSO interface {
	// Mappable returns the pages: Size bytes, the first page is data, what
	// follows the shared object.
	Mappable() mem.Mappable
	Size() uint64
	// Refresh is called after a system call read a clock.
	Refresh()
}

// Exec is one call of execve(2).
type Exec struct {
	// File is what to run. Prepare replaces it, and releases what it was, by
	// the interpreter of a script; the caller releases it in the end.
	File Executable
	// Filename is what execve was given (AT_EXECFN); a script's interpreter
	// gets it as argument.
	Filename string
	// Inaccessible says that Filename does not work for the new program
	// (execveat(2) with a close-on-exec descriptor): scripts are ENOENT.
	Inaccessible bool
	Argv, Envv   []string
	Open         Opener

	// Set before Load:
	UID, EUID, GID, EGID uint32
	Secure               bool             // AT_SECURE
	NoRandom             bool             // ADDR_NO_RANDOMIZE
	VDSO                 VDSO             // may be nil
	CPUMask              *cpufeature.Mask // may be nil
	StackLimit           uint64

	execfn string // what AT_EXECFN points to
}

// Image is a loaded program.
type Image struct {
	Entry, SP uint64 // the first registers
	Base      uint64 // where the interpreter is, 0 without one
}

const (
	// maxArgStrlen is MAX_ARG_STRLEN: 32 pages for one string.
	maxArgStrlen = 32 * pageSize
	// argMax is ARG_MAX, which is always granted.
	argMax = 128 << 10
	// stackDefault is _STK_LIM.
	stackDefault = 8 << 20
	// maxInterpreters is how many scripts may be interpreters of scripts
	// (exec_binprm: depth > 5 is ELOOP).
	maxInterpreters = 5
	// binprmBufSize is how much of a file is looked at for its type.
	binprmBufSize = 256
	pathMax       = 4096

	pageSize = mem.PageSize
	pageMask = pageSize - 1
)

// CheckArgs applies the limits of execve(2) to arguments and environment: E2BIG
// when a string, or all with their pointers, are too large for stackLimit.
func CheckArgs(argv, envv []string, stackLimit uint64) error {
	limit := max(min(stackDefault/4*3, stackLimit/4), argMax)
	total := uint64(max(len(argv), 1)+len(envv)) * 8
	for _, list := range [2][]string{argv, envv} {
		for _, s := range list {
			if len(s) >= maxArgStrlen {
				return unix.E2BIG
			}
			if total += uint64(len(s)) + 1; total > limit {
				return unix.E2BIG
			}
		}
	}
	if total > limit {
		return unix.E2BIG
	}
	return nil
}

// Prepare follows #! lines: File becomes what is to be loaded, Argv its
// arguments. ENOEXEC when it is no executable.
func (e *Exec) Prepare() error {
	if err := CheckArgs(e.Argv, e.Envv, e.StackLimit); err != nil {
		return err
	}
	if len(e.Argv) == 0 {
		e.Argv = []string{""} // do_execveat_common since 5.18
	}
	e.execfn = e.Filename
	name := e.Filename
	for depth := 0; ; depth++ {
		var buf [binprmBufSize]byte
		n, err := readFull(e.File, buf[:], 0)
		if err != nil {
			return err
		}
		head := buf[:n]
		if n < 2 || head[0] != '#' || head[1] != '!' {
			return nil
		}
		interp, arg, hasArg, err := parseScript(&buf)
		if err != nil {
			return err
		}
		if e.Inaccessible {
			return unix.ENOENT
		}
		argv := make([]string, 0, len(e.Argv)+2)
		argv = append(argv, interp)
		if hasArg {
			argv = append(argv, arg)
		}
		argv = append(argv, name)
		e.Argv = append(argv, e.Argv[1:]...)
		if err := CheckArgs(e.Argv, e.Envv, e.StackLimit); err != nil {
			return err
		}
		f, err := e.Open(interp)
		if err != nil {
			return err
		}
		e.File.Release()
		e.File = f
		name = interp
		if depth+1 > maxInterpreters {
			return unix.ELOOP
		}
	}
}

// parseScript takes a #! line apart as load_script does. What follows the
// end of the file in buf is zero.
func parseScript(buf *[binprmBufSize]byte) (interp, arg string, hasArg bool, err error) {
	blank := func(c byte) bool { return c == ' ' || c == '\t' }
	line := buf[2:]
	end := -1
	for i, c := range line {
		if c == '\n' {
			end = i
			break
		}
	}
	if end < 0 {
		// No end of line: the name at least must be whole, that is be
		// followed by a blank or the end of the file.
		i := 0
		for i < len(line) && blank(line[i]) {
			i++
		}
		if i == len(line) {
			return "", "", false, unix.ENOEXEC
		}
		for i < len(line) && !blank(line[i]) && line[i] != 0 {
			i++
		}
		if i == len(line) {
			return "", "", false, unix.ENOEXEC
		}
		end = len(line) - 1
	}
	line = line[:end]
	for len(line) > 0 && blank(line[len(line)-1]) {
		line = line[:len(line)-1]
	}
	for len(line) > 0 && blank(line[0]) {
		line = line[1:]
	}
	for i, c := range line {
		if c == 0 {
			line = line[:i]
			break
		}
	}
	if len(line) == 0 {
		return "", "", false, unix.ENOEXEC
	}
	i := 0
	for i < len(line) && !blank(line[i]) {
		i++
	}
	interp = string(line[:i])
	rest := line[i:]
	for len(rest) > 0 && blank(rest[0]) {
		rest = rest[1:]
	}
	return interp, string(rest), len(rest) > 0, nil
}

// readFull reads as much of p as the file has.
func readFull(f Executable, p []byte, off int64) (int, error) {
	n := 0
	for n < len(p) {
		k, err := f.ReadAtKernel(p[n:], off+int64(n))
		if k > 0 {
			n += k
		}
		if err != nil {
			return n, err
		}
		if k <= 0 {
			break
		}
	}
	return n, nil
}
