package kernel

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/pkg/abi/linux"
	"runsc/sentry/arch"
	"runsc/sentry/cred"
	"runsc/sentry/image"
	"runsc/sentry/mm"
	"runsc/sentry/seccompbpf"
	"runsc/sentry/vfs"
)

// errBad is returned for a record that cannot have been written by a save.
var errBad = errors.New("the image is damaged")

func bad(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errBad, fmt.Sprintf(format, args...))
}

// regList lists the registers in the order of image.Task.
func regList(r *arch.Regs) [21]*uint64 {
	return [...]*uint64{
		&r.R15, &r.R14, &r.R13, &r.R12, &r.Rbp, &r.Rbx, &r.R11, &r.R10, &r.R9, &r.R8, &r.Rax, &r.Rcx, &r.Rdx, &r.Rsi, &r.Rdi,
		&r.OrigRax, &r.Rip, &r.Eflags, &r.Rsp, &r.FsBase, &r.GsBase,
	}
}

// taskRecord makes the record of a task but for what saveTask adds; k.mu and
// sigmu are held.
func (s *containerSaver) taskRecord(t *Task) *image.Task {
	m := &t.misc
	rec := &image.Task{
		ID: s.e.Known(t), Group: s.e.Known(t.tg), PID: s.pidID(t.PID()), Killed: t.killed.Load(),
		PDeathSig: t.pdeathSig, Usage: usageRecord(t.use()), StartTime: t.startTime,
		TimerSlack: m.timerSlack.Load(), Nice: m.nice.Load(), Policy: m.policy.Load(), RTPriority: m.rtPriority.Load(),
		Personality: m.personality.Load(), IOPrio: m.ioprio.Load(), THPDisable: m.thpDisable.Load(), IO: t.IO().record(),
	}
	if a := m.affinity.Load(); a != nil {
		rec.Affinity = *a
	}
	s.namespaceID(t.PID().ns)
	cr := t.Cred()
	rec.Creds = s.id(cr, func(id image.ID) error { return s.e.Put(image.KindCreds, credsRecord(id, cr)) })
	if f := t.seccomp.Load(); f != nil {
		rec.Seccomp = s.seccompID(f)
	}
	t.mu.Lock()
	rec.Comm = []byte(t.comm)
	rec.UTS, rec.IPC = s.utsID(t.uts), s.ipcID(t.ipc)
	rec.ChildPIDNS = s.namespaceID(t.childPIDNS)
	t.mu.Unlock()
	if t.exitState != exitNone {
		rec.State = image.StateZombie
		return rec
	}

	rec.Regs = make([]uint64, 0, 21)
	for _, p := range regList(&t.regs) {
		rec.Regs = append(rec.Regs, *p)
	}
	if tr := t.trap; tr != (trapInfo{}) {
		rec.Trap = []uint64{tr.trapNo, tr.errCode, tr.cr2}
	}
	rec.RestartCode = int32(t.restart.code)
	if t.restart.block != nil {
		r := t.restart.block.SaveRestart()
		rec.Restart = &r
	}
	rec.ClearChildTID, rec.RobustList = t.userAddr.clearChildTID, t.userAddr.robustList
	if t.run.kind == runReenter {
		rec.Run = image.RunReenter
		if r := &t.reentry; r.used {
			rec.Reentry = &image.Reentry{
				Timed: r.timed, Deadline: r.deadline, Count: r.count,
				PartTimed: r.part.timed, PartDeadline: r.part.deadline, Done: r.part.done,
			}
			if r.futex != nil {
				s.places[r.futex] = t
			}
		}
	}
	g := &t.sig
	rec.Pending = queueRecord(&g.pending)
	rec.Mask, rec.SavedMask, rec.RestoreMask = uint64(g.mask), uint64(g.savedMask), g.restoreMask
	rec.StopPending, rec.Stopped = g.stopPending, g.stopped
	rec.AltStack, rec.AltFlags, rec.AltSize = g.altStack.Sp, g.altStack.Flags, g.altStack.Size
	return rec
}

// saveTask saves what a task refers to, and its record.
func (s *containerSaver) saveTask(t *Task) error {
	rec := s.trecs[t]
	var err error
	if rec.State == image.StateLive {
		if rec.FP, err = s.k.saveFP(t.ctx); err != nil {
			return err
		}
		if t.mm == nil || t.files == nil || t.fs == nil || t.mountNS == nil {
			return errors.New("a live task without memory or files")
		}
		if rec.MountNamespace, err = vfs.SaveNamespace(s.e.SaveEnv, t.mountNS); err != nil {
			return err
		}
		if rec.FS, err = vfs.SaveFSContext(s.e.SaveEnv, t.fs); err != nil {
			return err
		}
		if rec.Files, err = vfs.SaveFDTable(s.e.SaveEnv, t.files); err != nil {
			return err
		}
		if rec.MM, err = t.mm.Save(s.e.MM); err != nil {
			return err
		}
	}
	return s.e.Put(image.KindTask, rec)
}

func usageRecord(u usage) *image.Usage {
	u.io = IOUsage{} // in a key of its own
	if u == (usage{}) {
		return nil
	}
	return &image.Usage{User: u.user, Sys: u.sys, MinFlt: u.minflt, MajFlt: u.majflt, NVCSw: u.nvcsw, NIVCSw: u.nivcsw, MaxRSS: u.maxRSS}
}

func restoredUsage(r *image.Usage) usage {
	if r == nil {
		return usage{}
	}
	return usage{user: r.User, sys: r.Sys, minflt: r.MinFlt, majflt: r.MajFlt, nvcsw: r.NVCSw, nivcsw: r.NIVCSw, maxRSS: r.MaxRSS}
}

func credsRecord(id image.ID, c *cred.Creds) *image.Creds {
	return &image.Creds{
		ID: id, UIDs: []uint32{c.UID, c.EUID, c.SUID, c.FSUID}, GIDs: []uint32{c.GID, c.EGID, c.SGID, c.FSGID},
		Groups:     c.Groups,
		Caps:       []uint64{uint64(c.Permitted), uint64(c.Effective), uint64(c.Inheritable), uint64(c.Bounding), uint64(c.Ambient)},
		SecureBits: c.SecureBits, NoNewPrivs: c.NoNewPrivs,
	}
}

func (r *restored) creds(id image.ID) (*cred.Creds, error) {
	return image.Once(r.e.Restorer, id, func() (*cred.Creds, error) {
		var rec image.Creds
		if err := r.e.Get(image.KindCreds, id, &rec); err != nil {
			return nil, err
		}
		if len(rec.UIDs) != 4 || len(rec.GIDs) != 4 || len(rec.Caps) != 5 || len(rec.Groups) > 65536 {
			return nil, bad("credentials %d", id)
		}
		allowed, noNewPrivs := cred.AllCaps, rec.NoNewPrivs
		if c := r.e.Cred; c != nil {
			allowed, noNewPrivs = c.Bounding, noNewPrivs || c.NoNewPrivs
		}
		caps := func(i int) cred.Caps { return cred.Caps(rec.Caps[i]) & allowed }
		return &cred.Creds{
			UID: rec.UIDs[0], EUID: rec.UIDs[1], SUID: rec.UIDs[2], FSUID: rec.UIDs[3],
			GID: rec.GIDs[0], EGID: rec.GIDs[1], SGID: rec.GIDs[2], FSGID: rec.GIDs[3], Groups: rec.Groups,
			Permitted: caps(0), Effective: caps(1) & caps(0), Inheritable: caps(2), Bounding: caps(3), Ambient: caps(4),
			SecureBits: rec.SecureBits, NoNewPrivs: noNewPrivs,
		}, nil
	})
}

// seccompID numbers a task's filters.
func (s *containerSaver) seccompID(f *seccompFilters) image.ID {
	var ids []image.ID
	for i := range *f {
		x := (*f)[i]
		rec := image.Filter{}
		switch p := x.(type) {
		case *seccompbpf.Program:
			rec.Program = p.Raw()
		case seccompbpf.Strict:
			rec.Type = image.FilterStrict
		default:
			rec.Type = image.FilterProfile
		}
		ids = append(ids, s.id(x, func(id image.ID) error {
			rec.ID = id
			return s.e.Put(image.KindFilter, &rec)
		}))
	}
	return s.id(f, func(id image.ID) error { return s.e.Put(image.KindSeccomp, &image.Seccomp{ID: id, Filters: ids}) })
}

// seccomp makes a task's filters. Instead of that of the saved container's
// specification each task has the new one's.
func (r *restored) seccomp(id image.ID) (*seccompFilters, error) {
	return image.Once(r.e.Restorer, id, func() (*seccompFilters, error) {
		var rec image.Seccomp
		if err := r.e.Get(image.KindSeccomp, id, &rec); err != nil {
			return nil, err
		}
		if len(rec.Filters) > maxFilters {
			return nil, bad("%d filters", len(rec.Filters))
		}
		list := append(seccompFilters{}, r.profile...)
		for _, fid := range rec.Filters {
			f, err := image.Once(r.e.Restorer, fid, func() (*savedFilter, error) { return r.filter(fid) })
			if err != nil {
				return nil, err
			}
			if f.f != nil {
				list = append(list, f.f)
			}
		}
		return &list, nil
	})
}

// savedFilter is a filter of an image; nil for the saved specification's.
type savedFilter struct{ f seccompbpf.Filter }

func (r *restored) filter(id image.ID) (*savedFilter, error) {
	var rec image.Filter
	if err := r.e.Get(image.KindFilter, id, &rec); err != nil {
		return nil, err
	}
	switch rec.Type {
	case image.FilterProgram:
		p, err := seccompbpf.Parse(rec.Program)
		return &savedFilter{p}, err
	case image.FilterStrict:
		return &savedFilter{seccompbpf.Strict{}}, nil
	case image.FilterProfile:
		return &savedFilter{}, nil
	}
	return nil, bad("filter of type %d", rec.Type)
}

// makeTask makes a task of its record but for what needs other objects.
func (r *restored) makeTask(tg *ThreadGroup, id image.ID) (*Task, error) {
	return image.Once(r.e.Restorer, id, func() (*Task, error) {
		rec := new(image.Task)
		if err := r.e.Get(image.KindTask, id, rec); err != nil {
			return nil, err
		}
		t := newTask(r.k, r.c)
		t.tg = tg
		r.trecs[t] = rec
		r.tasks = append(r.tasks, t)
		cr, err := r.creds(rec.Creds)
		if err != nil {
			return nil, err
		}
		t.creds.Store(cr)
		if rec.Seccomp == 0 && len(r.profile) > 0 {
			t.seccomp.Store(&r.profile)
		} else if rec.Seccomp != 0 {
			f, err := r.seccomp(rec.Seccomp)
			if err != nil {
				return nil, err
			}
			if len(*f) > 0 {
				t.seccomp.Store(f)
			}
		}
		pid, err := r.pid(rec.PID)
		if err != nil {
			return nil, err
		}
		if pid.task != nil {
			return nil, bad("two tasks with one pid")
		}
		pid.task = t
		t.pid.Store(pid)
		t.comm = string(rec.Comm[:min(len(rec.Comm), 15)])
		if t.uts, err = r.utsNS(rec.UTS); err != nil {
			return nil, err
		}
		if t.ipc, err = r.ipcNS(rec.IPC); err != nil {
			return nil, err
		}
		if rec.ChildPIDNS != 0 {
			if t.childPIDNS = r.spaces[rec.ChildPIDNS]; t.childPIDNS == nil {
				return nil, bad("pid namespace %d is not listed", rec.ChildPIDNS)
			}
		}
		t.restoreMisc(rec, r.shift)
		u := restoredUsage(rec.Usage)
		a := &t.acct
		a.user.Store(u.user)
		a.sys.Store(u.sys)
		a.minflt.Store(u.minflt)
		a.majflt.Store(u.majflt)
		a.nvcsw.Store(u.nvcsw)
		a.nivcsw.Store(u.nivcsw)
		x := restoredIO(rec.IO)
		a.io.rchar.Store(x.ReadBytes)
		a.io.wchar.Store(x.WrittenBytes)
		a.io.syscr.Store(x.ReadCalls)
		a.io.syscw.Store(x.WriteCalls)
		if rec.State != image.StateLive {
			t.exitState = exitZombie
			t.sig.exiting = true
			t.killed.Store(true)
			t.phase.Store(phaseDead)
			return t, nil
		}
		return t, r.restoreLive(t, rec)
	})
}

func (t *Task) restoreMisc(rec *image.Task, shift int64) {
	t.startTime = rec.StartTime + shift
	if ValidSignal(rec.PDeathSig) {
		t.pdeathSig = rec.PDeathSig
	}
	m := &t.misc
	m.timerSlack.Store(rec.TimerSlack)
	t.SetNice(rec.Nice)
	m.policy.Store(rec.Policy)
	m.rtPriority.Store(rec.RTPriority)
	m.personality.Store(rec.Personality)
	m.ioprio.Store(rec.IOPrio)
	m.thpDisable.Store(rec.THPDisable)
	if len(rec.Affinity) > 0 {
		// CPUs that are not there any more are left out; if none is left,
		// all are allowed.
		_ = t.SetAffinity(rec.Affinity)
	}
}

// restoreLive restores what only a live task has.
func (r *restored) restoreLive(t *Task, rec *image.Task) error {
	if len(rec.Regs) != 21 {
		return bad("%d registers", len(rec.Regs))
	}
	for i, p := range regList(&t.regs) {
		*p = rec.Regs[i]
	}
	if t.regs.FsBase >= arch.GuestTop || t.regs.GsBase >= arch.GuestTop {
		return bad("segment bases")
	}
	t.regs.Eflags = t.regs.Eflags&arch.UserEflags | eflagsInit
	if len(rec.Trap) == 3 {
		t.trap = trapInfo{rec.Trap[0], rec.Trap[1], rec.Trap[2]}
	}
	switch c := unix.Errno(rec.RestartCode); c {
	case 0, 512, 513, 514, 516:
		t.restart.code = c
	default:
		return bad("restart code %d", c)
	}
	if rec.Restart != nil {
		b, err := restoreRestart(rec.Restart, r.shift)
		if err != nil {
			return err
		}
		t.restart.block = b
	}
	switch rec.Run {
	case image.RunGuest, image.RunVfork:
	case image.RunReenter:
		t.run.kind = runReenter
		if x := rec.Reentry; x != nil {
			if x.Done < 0 || x.Count < 0 {
				return bad("progress of a call")
			}
			t.reentry = reentry{
				used: true, timed: x.Timed, deadline: shifted(x.Deadline, r.shift), count: x.Count,
				part: reentryPart{timed: x.PartTimed, deadline: shifted(x.PartDeadline, r.shift), done: x.Done},
			}
		}
	default:
		return bad("run state %d", rec.Run)
	}
	t.userAddr = taskAddrs{rec.ClearChildTID, rec.RobustList}
	g := &t.sig
	g.mask = arch.SigSet(rec.Mask) &^ sigKernelOnly
	g.savedMask, g.restoreMask = arch.SigSet(rec.SavedMask)&^sigKernelOnly, rec.RestoreMask
	g.stopPending, g.stopped = rec.StopPending, rec.Stopped
	g.altStack = arch.SigStack{Sp: rec.AltStack, Flags: int32(uint32(rec.AltFlags) & (linux.SS_DISABLE | linux.SS_AUTODISARM)), Size: rec.AltSize}
	t.killed.Store(rec.Killed)
	t.work.Store(true)
	return nil
}

// restoreFiles restores what a live task refers to: files, memory, and the
// context that runs it.
func (r *restored) restoreFiles(t *Task) error {
	rec := r.trecs[t]
	e := r.e.RestoreEnv
	ns, err := vfs.RestoreNamespace(e, rec.MountNamespace)
	if err != nil {
		return err
	}
	t.setRestored(func() { t.mountNS = ns })
	fs, err := vfs.RestoreFSContext(e, rec.FS)
	if err != nil {
		return err
	}
	t.setRestored(func() { t.fs = fs })
	files, err := vfs.RestoreFDTable(e, rec.Files)
	if err != nil {
		return err
	}
	t.setRestored(func() { t.files = files })
	m, err := mm.Restore(r.e.MM, rec.MM, t.tg.limit)
	if err != nil {
		return err
	}
	t.setRestored(func() { t.mm = m })
	return r.k.restoreFP(t.ctx, rec.FP)
}

// shifted moves a deadline with the clock; 0 and less are none.
func shifted(deadline, by int64) int64 {
	if deadline <= 0 {
		return deadline
	}
	return max(addSat(deadline, by), 1)
}

// setRestored changes the task under its lock: others see it already.
func (t *Task) setRestored(set func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	set()
}

// infoOf makes a siginfo of a record.
func infoOf(b []byte) (info arch.SigInfo, err error) {
	if len(b) > len(abi.Bytes(&info)) {
		return info, bad("siginfo of %d bytes", len(b))
	}
	copy(abi.Bytes(&info), b)
	if !ValidSignal(info.Signo) {
		return info, bad("signal %d", info.Signo)
	}
	return info, nil
}
