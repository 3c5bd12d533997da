package seccompbpf

import (
	"fmt"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"runsc/pkg/abi/linux"
)

// Profile is linux.seccomp of an OCI spec, by system call number.
type Profile struct {
	other uint32 // the default action
	rules [maxSyscall][]rule
}

// maxSyscall bounds the numbers a profile can name.
const maxSyscall = 512

// rule is one entry for a system call: all conditions must hold.
type rule struct {
	action uint32
	args   []specs.LinuxSeccompArg
}

var actionOf = map[specs.LinuxSeccompAction]uint32{
	specs.ActKill: unix.SECCOMP_RET_KILL_THREAD, specs.ActKillThread: unix.SECCOMP_RET_KILL_THREAD,
	specs.ActKillProcess: unix.SECCOMP_RET_KILL_PROCESS, specs.ActTrap: unix.SECCOMP_RET_TRAP,
	specs.ActErrno: unix.SECCOMP_RET_ERRNO, specs.ActTrace: unix.SECCOMP_RET_TRACE,
	specs.ActAllow: unix.SECCOMP_RET_ALLOW, specs.ActLog: unix.SECCOMP_RET_LOG,
}

// action translates an action with its errno, EPERM if it names none.
func action(field string, a specs.LinuxSeccompAction, errno *uint) (uint32, error) {
	r, ok := actionOf[a]
	if !ok {
		return 0, fmt.Errorf("%s: action %q is not supported", field, a)
	}
	if r == unix.SECCOMP_RET_ERRNO || r == unix.SECCOMP_RET_TRACE {
		n := uint(unix.EPERM)
		if errno != nil {
			n = *errno
		}
		r |= uint32(n) & unix.SECCOMP_RET_DATA
	}
	return r, nil
}

// NewProfile translates the spec's profile. System calls that x86-64 lacks
// are left out, as runc leaves them out; rules of other architectures cannot
// match here.
func NewProfile(s *specs.LinuxSeccomp) (*Profile, error) {
	p := &Profile{}
	var err error
	if p.other, err = action("linux.seccomp.defaultAction", s.DefaultAction, s.DefaultErrnoRet); err != nil {
		return nil, err
	}
	if s.ListenerPath != "" {
		return nil, fmt.Errorf("linux.seccomp.listenerPath: notification of a listener is not supported")
	}
	for i, sc := range s.Syscalls {
		act, err := action(fmt.Sprintf("linux.seccomp.syscalls[%d]", i), sc.Action, sc.ErrnoRet)
		if err != nil {
			return nil, err
		}
		for _, a := range sc.Args {
			if a.Index > 5 {
				return nil, fmt.Errorf("linux.seccomp.syscalls[%d]: there is no argument %d", i, a.Index)
			}
			if _, ok := compare(a.Op, 0, 0, 0); !ok {
				return nil, fmt.Errorf("linux.seccomp.syscalls[%d]: unknown operator %q", i, a.Op)
			}
		}
		for _, name := range sc.Names {
			if nr, ok := linux.SyscallNumbers[name]; ok && nr < maxSyscall {
				p.rules[nr] = append(p.rules[nr], rule{act, sc.Args})
			}
		}
	}
	return p, nil
}

// compare carries out an operator; ok is false if there is none such.
func compare(op specs.LinuxSeccompOperator, v, want, want2 uint64) (yes, ok bool) {
	switch op {
	case specs.OpNotEqual:
		return v != want, true
	case specs.OpLessThan:
		return v < want, true
	case specs.OpLessEqual:
		return v <= want, true
	case specs.OpEqualTo:
		return v == want, true
	case specs.OpGreaterEqual:
		return v >= want, true
	case specs.OpGreaterThan:
		return v > want, true
	case specs.OpMaskedEqual:
		return v&want == want2, true
	}
	return false, false
}

func (r *rule) matches(d *Data) bool {
	for i := range r.args {
		a := &r.args[i]
		if yes, _ := compare(a.Op, d.Args[a.Index], a.Value, a.ValueTwo); !yes {
			return false
		}
	}
	return true
}

// Run implements Filter. Of several rules that match, the strictest holds.
func (p *Profile) Run(d *Data) uint32 {
	if d.Nr < 0 || d.Nr >= maxSyscall {
		return p.other
	}
	result, found := uint32(0), false
	for i := range p.rules[d.Nr] {
		r := &p.rules[d.Nr][i]
		if r.matches(d) && (!found || int32(r.action&unix.SECCOMP_RET_ACTION_FULL) < int32(result&unix.SECCOMP_RET_ACTION_FULL)) {
			result, found = r.action, true
		}
	}
	if !found {
		return p.other
	}
	return result
}
