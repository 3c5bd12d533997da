package kernel

import "golang.org/x/sys/unix"

// ProcessDir is an inode of a directory /proc/PID, which pidfd_send_signal(2)
// takes for a pidfd.
type ProcessDir interface {
	// DirProcess returns the process whose directory it is; nil for another directory.
	DirProcess() *ThreadGroup
}

// MayInspect is Linux's ptrace_may_access: whether the task may see the
// secrets of o's process. File systems check the ids that the caller opens
// files with (PTRACE_MODE_FSCREDS), the others the real ones
// (PTRACE_MODE_REALCREDS).
func (t *Task) MayInspect(o *Task, fsCreds bool) bool {
	if t.tg == o.tg {
		return true
	}
	cr, target := t.Cred(), o.Cred()
	if cr.Has(unix.CAP_SYS_PTRACE) {
		return true
	}
	if target == nil {
		return false
	}
	uid, gid := cr.UID, cr.GID
	if fsCreds {
		uid, gid = cr.FSUID, cr.FSGID
	}
	if uid != target.UID || uid != target.EUID || uid != target.SUID || gid != target.GID || gid != target.EGID || gid != target.SGID {
		return false
	}
	// cap_ptrace_access_check: the real ids go with the permitted set.
	held := cr.Permitted
	if fsCreds {
		held = cr.Effective
	}
	return target.Permitted&^held == 0 && o.tg.Dumpable() == 1
}
