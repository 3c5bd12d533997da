package boot

import (
	"fmt"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"runsc/sentry/cred"
)

// capByName maps the names of capabilities(7) to their numbers.
var capByName = map[string]int{
	"CAP_CHOWN": unix.CAP_CHOWN, "CAP_DAC_OVERRIDE": unix.CAP_DAC_OVERRIDE, "CAP_DAC_READ_SEARCH": unix.CAP_DAC_READ_SEARCH,
	"CAP_FOWNER": unix.CAP_FOWNER, "CAP_FSETID": unix.CAP_FSETID, "CAP_KILL": unix.CAP_KILL, "CAP_SETGID": unix.CAP_SETGID,
	"CAP_SETUID": unix.CAP_SETUID, "CAP_SETPCAP": unix.CAP_SETPCAP, "CAP_LINUX_IMMUTABLE": unix.CAP_LINUX_IMMUTABLE,
	"CAP_NET_BIND_SERVICE": unix.CAP_NET_BIND_SERVICE, "CAP_NET_BROADCAST": unix.CAP_NET_BROADCAST, "CAP_NET_ADMIN": unix.CAP_NET_ADMIN,
	"CAP_NET_RAW": unix.CAP_NET_RAW, "CAP_IPC_LOCK": unix.CAP_IPC_LOCK, "CAP_IPC_OWNER": unix.CAP_IPC_OWNER,
	"CAP_SYS_MODULE": unix.CAP_SYS_MODULE, "CAP_SYS_RAWIO": unix.CAP_SYS_RAWIO, "CAP_SYS_CHROOT": unix.CAP_SYS_CHROOT,
	"CAP_SYS_PTRACE": unix.CAP_SYS_PTRACE, "CAP_SYS_PACCT": unix.CAP_SYS_PACCT, "CAP_SYS_ADMIN": unix.CAP_SYS_ADMIN,
	"CAP_SYS_BOOT": unix.CAP_SYS_BOOT, "CAP_SYS_NICE": unix.CAP_SYS_NICE, "CAP_SYS_RESOURCE": unix.CAP_SYS_RESOURCE,
	"CAP_SYS_TIME": unix.CAP_SYS_TIME, "CAP_SYS_TTY_CONFIG": unix.CAP_SYS_TTY_CONFIG, "CAP_MKNOD": unix.CAP_MKNOD,
	"CAP_LEASE": unix.CAP_LEASE, "CAP_AUDIT_WRITE": unix.CAP_AUDIT_WRITE, "CAP_AUDIT_CONTROL": unix.CAP_AUDIT_CONTROL,
	"CAP_SETFCAP": unix.CAP_SETFCAP, "CAP_MAC_OVERRIDE": unix.CAP_MAC_OVERRIDE, "CAP_MAC_ADMIN": unix.CAP_MAC_ADMIN,
	"CAP_SYSLOG": unix.CAP_SYSLOG, "CAP_WAKE_ALARM": unix.CAP_WAKE_ALARM, "CAP_BLOCK_SUSPEND": unix.CAP_BLOCK_SUSPEND,
	"CAP_AUDIT_READ": unix.CAP_AUDIT_READ, "CAP_PERFMON": unix.CAP_PERFMON, "CAP_BPF": unix.CAP_BPF,
	"CAP_CHECKPOINT_RESTORE": unix.CAP_CHECKPOINT_RESTORE,
}

// capSet turns names into a set. Names that do not exist are an error, as for
// every field that cannot be honoured.
func capSet(field string, names []string) (cred.Caps, error) {
	var s cred.Caps
	for _, n := range names {
		c, ok := capByName[n]
		if !ok {
			return 0, fmt.Errorf("process.capabilities.%s: unknown capability %q", field, n)
		}
		s |= 1 << uint(c)
	}
	return s, nil
}

// credentials returns what the process starts with. The exec that follows
// applies capabilities(7)'s rules to them, so for root the sets given are also
// the bounding set's subset.
func credentials(p *specs.Process) (*cred.Creds, error) {
	u := p.User
	c := &cred.Creds{
		UID: u.UID, EUID: u.UID, SUID: u.UID, FSUID: u.UID,
		GID: u.GID, EGID: u.GID, SGID: u.GID, FSGID: u.GID,
		Groups:     append([]uint32(nil), u.AdditionalGids...),
		NoNewPrivs: p.NoNewPrivileges,
	}
	if p.Capabilities == nil {
		return c, nil
	}
	for _, f := range []struct {
		name  string
		names []string
		set   *cred.Caps
	}{
		{"bounding", p.Capabilities.Bounding, &c.Bounding},
		{"effective", p.Capabilities.Effective, &c.Effective},
		{"permitted", p.Capabilities.Permitted, &c.Permitted},
		{"inheritable", p.Capabilities.Inheritable, &c.Inheritable},
		{"ambient", p.Capabilities.Ambient, &c.Ambient},
	} {
		s, err := capSet(f.name, f.names)
		if err != nil {
			return nil, err
		}
		*f.set = s
	}
	return c, nil
}

// rlimitByName maps the names in process.rlimits to resource numbers.
var rlimitByName = map[string]int{
	"RLIMIT_CPU": unix.RLIMIT_CPU, "RLIMIT_FSIZE": unix.RLIMIT_FSIZE, "RLIMIT_DATA": unix.RLIMIT_DATA,
	"RLIMIT_STACK": unix.RLIMIT_STACK, "RLIMIT_CORE": unix.RLIMIT_CORE, "RLIMIT_RSS": unix.RLIMIT_RSS,
	"RLIMIT_NPROC": unix.RLIMIT_NPROC, "RLIMIT_NOFILE": unix.RLIMIT_NOFILE, "RLIMIT_MEMLOCK": unix.RLIMIT_MEMLOCK,
	"RLIMIT_AS": unix.RLIMIT_AS, "RLIMIT_LOCKS": unix.RLIMIT_LOCKS, "RLIMIT_SIGPENDING": unix.RLIMIT_SIGPENDING,
	"RLIMIT_MSGQUEUE": unix.RLIMIT_MSGQUEUE, "RLIMIT_NICE": unix.RLIMIT_NICE, "RLIMIT_RTPRIO": unix.RLIMIT_RTPRIO,
	"RLIMIT_RTTIME": unix.RLIMIT_RTTIME,
}

// rlimits returns the limits named by the process over Linux's defaults.
func rlimits(p *specs.Process) (map[int]unix.Rlimit, error) {
	m := map[int]unix.Rlimit{}
	for _, l := range p.Rlimits {
		r, ok := rlimitByName[l.Type]
		if !ok {
			return nil, fmt.Errorf("process.rlimits: unknown limit %q", l.Type)
		}
		if l.Soft > l.Hard {
			return nil, fmt.Errorf("process.rlimits: %s has a soft limit %d above its hard limit %d", l.Type, l.Soft, l.Hard)
		}
		if _, dup := m[r]; dup {
			return nil, fmt.Errorf("process.rlimits: %s is given twice", l.Type)
		}
		m[r] = unix.Rlimit{Cur: l.Soft, Max: l.Hard}
	}
	return m, nil
}

// withHome adds HOME to an environment that has none, as runc does, from the
// user's line in the container's passwd file; passwd may be empty.
func withHome(env []string, uid uint32, passwd string) []string {
	for _, e := range env {
		if strings.HasPrefix(e, "HOME=") && e != "HOME=" {
			return env
		}
	}
	home := "/"
	want := fmt.Sprint(uid)
	for line := range strings.Lines(passwd) {
		f := strings.Split(strings.TrimRight(line, "\n"), ":")
		if len(f) >= 6 && f[2] == want && f[5] != "" {
			home = f[5]
			break
		}
	}
	return append(append([]string(nil), env...), "HOME="+home)
}

// searchPath returns the files to try, in order, for the command name: itself
// if it has a slash, else one per directory of PATH in env.
func searchPath(name string, env []string) []string {
	if strings.Contains(name, "/") {
		return []string{name}
	}
	var path string
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			path = v
		}
	}
	var files []string
	for _, d := range strings.Split(path, ":") {
		if d == "" {
			continue
		}
		files = append(files, strings.TrimRight(d, "/")+"/"+name)
	}
	return files
}
