package kernel

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"runsc/sentry/cred"
)

// groupAudit are settings of a process that its children inherit and that are
// seen in /proc alone. Each value is kept plus one; 0 is the default.
type groupAudit struct {
	dumpFilter atomic.Uint64 `save:"rec"`
	login      atomic.Uint64 `save:"rec"`
	session    atomic.Uint32 `save:"rec"` // 0: none
}

func (a *groupAudit) inherit(from *groupAudit) {
	a.dumpFilter.Store(from.dumpFilter.Load())
	a.login.Store(from.login.Load())
	a.session.Store(from.session.Load())
}

// defaultDumpFilter is MMF_DUMP_FILTER_DEFAULT: anonymous mappings, ELF
// headers and private huge pages.
const defaultDumpFilter = 0x33

// DumpFilter is /proc/PID/coredump_filter.
func (tg *ThreadGroup) DumpFilter() uint32 {
	if v := tg.audit.dumpFilter.Load(); v != 0 {
		return uint32(v - 1)
	}
	return defaultDumpFilter
}

// SetDumpFilter sets it; bits that mean nothing are dropped.
func (tg *ThreadGroup) SetDumpFilter(v uint32) { tg.audit.dumpFilter.Store(uint64(v&0x1ff) + 1) }

// noLogin is the unset audit user and session.
const noLogin = ^uint32(0)

// LoginUID is /proc/PID/loginuid.
func (tg *ThreadGroup) LoginUID() uint32 {
	if v := tg.audit.login.Load(); v != 0 {
		return uint32(v - 1)
	}
	return noLogin
}

// AuditSession is /proc/PID/sessionid.
func (tg *ThreadGroup) AuditSession() uint32 {
	if v := tg.audit.session.Load(); v != 0 {
		return v
	}
	return noLogin
}

// SetLoginUID sets the audit user and begins a session (audit_set_loginuid).
// Whoever has one needs CAP_AUDIT_CONTROL for another: EPERM.
func (tg *ThreadGroup) SetLoginUID(cr *cred.Creds, uid uint32) error {
	if tg.LoginUID() != noLogin && !cr.Has(unix.CAP_AUDIT_CONTROL) {
		return unix.EPERM
	}
	if uid == noLogin {
		tg.audit.login.Store(0)
		tg.audit.session.Store(0)
		return nil
	}
	tg.audit.login.Store(uint64(uid) + 1)
	tg.audit.session.Store(tg.k.nextSession.Add(1))
	return nil
}

// keepSession makes new sessions differ from a restored one.
func (k *Kernel) keepSession(id uint32) {
	for {
		last := k.nextSession.Load()
		if id <= last || id == noLogin || k.nextSession.CompareAndSwap(last, id) {
			return
		}
	}
}
