package proc

import (
	"fmt"

	"golang.org/x/sys/unix"

	"runsc/sentry/kernel"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// uts returns the caller's UTS namespace, for the Sentry the container's.
func (in *instance) uts(c vfs.Caller) *kernel.UTSNamespace {
	if t, ok := c.(*kernel.Task); ok {
		if u := t.UTS(); u != nil {
			return u
		}
	}
	return in.container.UTS()
}

// maxUTSName is __NEW_UTS_LEN.
const maxUTSName = 64

func hostName(in *instance, c vfs.Caller) string {
	host, _ := in.uts(c).Names()
	return host
}

func domainName(in *instance, c vfs.Caller) string {
	_, domain := in.uts(c).Names()
	return domain
}

func setHostName(in *instance, c vfs.Caller, s string) error {
	if len(s) > maxUTSName {
		s = s[:maxUTSName] // proc_dostring cuts
	}
	in.uts(c).SetHost(s)
	return nil
}

func setDomainName(in *instance, c vfs.Caller, s string) error {
	if len(s) > maxUTSName {
		s = s[:maxUTSName]
	}
	in.uts(c).SetDomain(s)
	return nil
}

func lastPID(in *instance, _ vfs.Caller) string { return fmt.Sprint(in.ns.Last()) }

func dropCaches(*instance, vfs.Caller, string) error {
	vfs.DropCaches()
	return nil
}

// boot returns the container's boot id.
func (s *Sysctls) boot() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bootID
}

func setLastPID(in *instance, c vfs.Caller, s string) error {
	if !c.Cred().Has(unix.CAP_SYS_ADMIN) && !c.Cred().Has(unix.CAP_CHECKPOINT_RESTORE) {
		return unix.EPERM
	}
	in.ns.SetLast(int32(parseInts(s)[0]))
	return nil
}

func (in *instance) policy() *mem.Policy { return in.container.Account().Policy() }

func (in *instance) tunables() *vfs.Tunables { return in.container.Tunables().FS }

// setOvercommitRatio and setOvercommitKbytes: a value of one takes the other's
// place (overcommit_ratio_handler).
func (in *instance) setOvercommitRatio(v []int64) {
	in.policy().OvercommitRatio.Store(v[0])
	if v[0] == 0 {
		return // a restored value, whose kbytes came before
	}
	in.policy().OvercommitKbytes.Store(0)
	in.sysctls.set("vm/overcommit_kbytes", "0")
}

func (in *instance) setOvercommitKbytes(v []int64) {
	in.policy().OvercommitKbytes.Store(v[0])
	in.sysctls.set("vm/overcommit_ratio", "0")
}

// roundPipeSize makes a capacity a power of two of pages (round_pipe_size).
func roundPipeSize(v int64) int64 {
	if v > 1<<31 {
		return 0
	}
	n := int64(pageSize)
	for n < v {
		n *= 2
	}
	return n
}

func fileNr(in *instance, _ vfs.Caller) string {
	return fmt.Sprintf("%d\t0\t%d", vfs.OpenFiles(), in.tunables().FileMax.Load())
}

func dentryState(*instance, vfs.Caller) string {
	all, idle := vfs.Dentries()
	return fmt.Sprintf("%d\t%d\t45\t0\t0\t0", all, idle)
}

func inodeNr() string {
	all, idle := vfs.Dentries()
	return fmt.Sprintf("%d\t%d", all, idle)
}
