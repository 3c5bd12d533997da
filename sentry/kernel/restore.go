package kernel

import (
	"fmt"
	"time"

	"runsc/pkg/waitq"
	"runsc/sentry/futex"
	"runsc/sentry/image"
	"runsc/sentry/mem"
	"runsc/sentry/mm"
	"runsc/sentry/platform"
	"runsc/sentry/vfs"
)

// restored is a restore under way, and then what Start needs of it.
type restored struct {
	c      *Container
	k      *Kernel
	e      *RestoreEnv
	rec    image.Container
	groups []*ThreadGroup
	tasks  []*Task
	pids   []*PID
	spaces map[image.ID]*PIDNamespace
	trecs  map[*Task]*image.Task
	grecs  map[*ThreadGroup]*image.ThreadGroup
	place  map[*ThreadGroup]int // in groups
	// profile is the new specification's filter, if it has one.
	profile seccompFilters
	// arm starts the timers.
	arm []func()
	// setClock: nothing in the sandbox would notice that its clocks are set to
	// the image's. Else they stay as they are, and shift is what to add to
	// times of CLOCK_MONOTONIC.
	setClock bool
	shift    int64
}

// RestoreContainer gives a new container the processes of an image: InitProcess
// returns the first, whose Start lets all of them run. On an error the
// container has no process and is of no further use.
func RestoreContainer(c *Container, env *RestoreEnv) error {
	r := &restored{
		c: c, k: c.k, e: env, spaces: map[image.ID]*PIDNamespace{}, trecs: map[*Task]*image.Task{},
		grecs: map[*ThreadGroup]*image.ThreadGroup{}, place: map[*ThreadGroup]int{},
	}
	if err := r.findContainer(); err != nil {
		return err
	}
	if _, err := image.Once(env.Restorer, r.rec.ID, func() (*Container, error) { return c, nil }); err != nil {
		return err
	}
	r.prepareEnv()
	if err := r.findClocks(); err != nil {
		return err
	}
	r.clocks()
	if err := r.namespaces(); err != nil {
		return err
	}
	for _, id := range r.rec.Groups {
		tg, err := image.Once(env.Restorer, id, func() (*ThreadGroup, error) { return r.makeGroup(id) })
		if err != nil {
			return err
		}
		r.place[tg] = len(r.place)
	}
	if len(r.place) != len(r.rec.Groups) {
		return bad("a process is there twice")
	}
	for _, tg := range r.groups {
		if err := r.linkGroup(tg); err != nil {
			return err
		}
	}
	if err := r.vforks(); err != nil {
		return err
	}
	if err := r.publish(); err != nil {
		return err
	}
	err := r.fill()
	if err == nil {
		err = r.futexes()
	}
	if err != nil {
		r.undo()
	}
	return err
}

func (r *restored) findContainer() error {
	ids := r.e.IDs(image.KindContainer)
	for _, id := range ids {
		r.rec = image.Container{} // what one record lacks is not another's
		if err := r.e.Get(image.KindContainer, id, &r.rec); err != nil {
			return err
		}
		if r.rec.Name == r.e.Source || r.e.Source == "" && len(ids) == 1 {
			return nil
		}
	}
	if r.e.Source == "" {
		return fmt.Errorf("the image has %d containers: which one is to be restored?", len(ids))
	}
	return fmt.Errorf("the image has no container %q", r.e.Source)
}

func (r *restored) prepareEnv() {
	e := r.e
	if e.Seccomp != nil {
		r.profile = seccompFilters{e.Seccomp}
	}
	if e.MM == nil {
		e.MM = &mm.RestoreEnv{
			Restorer: e.Restorer, MemFile: r.k.cfg.MemFile, Account: r.c.cfg.Account, Group: r.c.cfg.Group, Frames: e.FrameMap,
			RestoreMappable: func(id image.ID) (mem.Mappable, error) { return vfs.RestoreMappable(e.RestoreEnv, id) },
			RestoreRef:      func(id image.ID) (mm.Ref, error) { return vfs.RestoreFile(e.RestoreEnv, id) },
		}
		e.MM.VDSO, e.MM.VDSOLayout = r.k.vdso()
	}
	e.MM.Hold = e.Hold
	e.SignalTarget = func(typ, pid int32) vfs.SignalTarget { return &ioTarget{r.k, r.c.pidNS, typ, pid} }
	e.Task = func(id image.ID) (any, error) {
		t, ok := image.Object[*Task](e.Restorer, id)
		if !ok {
			return nil, bad("task %d", id)
		}
		return t, nil
	}
}

// findClocks decides about the clocks: they continue from the image's if the
// container comes first, or into a pod where all others sleep without a
// deadline; the containers of a pod's image find them set.
func (r *restored) findClocks() error {
	k := r.k
	var first image.Container
	if err := r.e.Get(image.KindContainer, r.e.IDs(image.KindContainer)[0], &first); err != nil {
		return err
	}
	from := [2]int64{first.Monotonic, first.Realtime}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.clockFrom == from:
	case k.quietLocked(r.c):
		r.setClock = true
		k.clockFrom = from
	default:
		r.shift = k.clock.Monotonic() - r.rec.Monotonic
	}
	r.e.ClockShift = r.shift
	return nil
}

// quietLocked tells whether no task of another container could notice that the
// clocks are set.
func (k *Kernel) quietLocked(but *Container) bool {
	for _, c := range k.containers {
		if c == but {
			continue
		}
		for t := range c.tasks {
			if !t.onLocked() {
				continue
			}
			if p := t.phase.Load(); p != phaseBlock || !t.untimed.Load() {
				return false
			}
			if t.tg.timed() {
				return false
			}
		}
	}
	return true
}

// timed tells whether the process has an armed timer.
func (tg *ThreadGroup) timed() bool {
	g := &tg.timers
	if !g.mu.TryLock() {
		return true
	}
	defer g.mu.Unlock()
	return timerRecord(g.real) != nil || len(g.posix) != 0
}

// clocks sets the sandbox's clocks to those of the save. Other containers of
// the same image find them set.
func (r *restored) clocks() {
	if !r.setClock {
		return
	}
	k := r.k
	k.clock.SetMonotonic(r.rec.Monotonic)
	k.clock.SetBoottime(r.rec.Boottime)
	k.start.Store(r.rec.Monotonic - r.rec.Uptime)
	if v, ok := k.cfg.VDSO.(vdsoState); ok {
		v.Reset()
	}
}

func (r *restored) namespaces() error {
	for i, id := range r.rec.PIDNamespaces {
		var rec image.PIDNamespace
		if err := r.e.Get(image.KindPIDNamespace, id, &rec); err != nil {
			return err
		}
		ns := r.c.pidNS
		if i > 0 {
			parent := r.spaces[rec.Parent]
			if parent == nil || parent.level >= maxPIDLevel {
				return bad("pid namespace %d", id)
			}
			ns = r.k.newPIDNamespace(parent)
		}
		was, err := image.Once(r.e.Restorer, id, func() (*PIDNamespace, error) { return ns, nil })
		if err == nil {
			err = sameSpace(was, ns, "pid")
		}
		if err != nil {
			return err
		}
		if r.spaces[id] != nil || rec.Last < 0 || rec.Last >= pidMax {
			return bad("pid namespace %d", id)
		}
		r.spaces[id] = ns
	}
	return nil
}

// pid makes an identity; its numbers are taken in publish.
func (r *restored) pid(id image.ID) (*PID, error) {
	return image.Once(r.e.Restorer, id, func() (*PID, error) {
		var rec image.PID
		if err := r.e.Get(image.KindPID, id, &rec); err != nil {
			return nil, err
		}
		ns := r.spaces[rec.Namespace]
		if ns == nil || len(rec.Numbers) != ns.level-r.c.pidNS.level+1 {
			return nil, bad("pid %d", id)
		}
		p := &PID{ns: ns, nums: make([]int32, ns.level+1)}
		for i, n := range rec.Numbers {
			if n <= 0 || n >= pidMax {
				return nil, bad("pid %d", n)
			}
			p.nums[r.c.pidNS.level+i] = n
		}
		r.pids = append(r.pids, p)
		return p, nil
	})
}

// takeLocked takes the numbers of an identity: those of the image, and new ones
// around the container's namespace.
func (r *restored) takeLocked(p *PID) error {
	for ns := p.ns; ns != nil; ns = ns.parent {
		if ns.level < r.c.pidNS.level {
			p.nums[ns.level] = ns.nextLocked()
		}
		n := p.nums[ns.level]
		delete(ns.kept, n)
		if n == 0 || ns.pids[n] != nil {
			p.ns.freeNumbersLocked(p, ns.level)
			return fmt.Errorf("process number %d of the image is taken in the namespace that the container is restored into", n)
		}
		ns.pids[n] = p
	}
	return nil
}

func (r *restored) utsNS(id image.ID) (*UTSNamespace, error) {
	if id == 0 {
		return nil, nil
	}
	u, err := image.Once(r.e.Restorer, id, func() (*UTSNamespace, error) {
		var rec image.UTS
		if err := r.e.Get(image.KindUTS, id, &rec); err != nil {
			return nil, err
		}
		if len(rec.Host) > 64 || len(rec.Domain) > 64 {
			return nil, bad("a host name of %d bytes", len(rec.Host))
		}
		u := r.c.uts
		if id != r.rec.UTS {
			u = r.k.NewUTSNamespace(string(rec.Host))
		}
		u.mu.Lock()
		defer u.mu.Unlock()
		if rec.HostSet || id != r.rec.UTS {
			u.host, u.hostSet = string(rec.Host), rec.HostSet
		}
		u.domain = string(rec.Domain)
		return u, nil
	})
	if err == nil && id == r.rec.UTS {
		err = sameSpace(u, r.c.uts, "uts")
	}
	return u, err
}

func (r *restored) ipcNS(id image.ID) (*IPCNamespace, error) {
	if id == 0 {
		return nil, nil
	}
	i, err := image.Once(r.e.Restorer, id, func() (*IPCNamespace, error) {
		var rec image.IPC
		if err := r.e.Get(image.KindIPC, id, &rec); err != nil {
			return nil, err
		}
		i := r.c.ipc
		if id != r.rec.IPC {
			i = r.k.NewIPCNamespace()
		}
		return i, i.restore(r.e, &rec, r.c.cfg.Account)
	})
	if err == nil && id == r.rec.IPC {
		err = sameSpace(i, r.c.ipc, "ipc")
	}
	return i, err
}

// vforks lets parents wait for the children of vfork again.
func (r *restored) vforks() error {
	for _, ch := range r.tasks {
		id := r.trecs[ch].Vfork
		if id == 0 {
			continue
		}
		p, ok := image.Object[*Task](r.e.Restorer, id)
		if !ok || r.trecs[p] == nil || r.trecs[p].Run != image.RunVfork || ch.exitState != exitNone || p.run.kind != runGuest {
			return bad("a parent that waits in vfork")
		}
		w := waitq.NewWaiter()
		p.run = runState{kind: runVfork, vfork: w}
		ch.vforkDone.Store(w)
	}
	return nil
}

// publish makes the processes known.
func (r *restored) publish() error {
	k, c := r.k, r.c
	k.mu.Lock()
	defer k.mu.Unlock()
	init, ok := image.Object[*ThreadGroup](r.e.Restorer, r.rec.Init)
	if !ok || init.exitState != exitNone || !init.isInit {
		return bad("there is no first process")
	}
	if c.init != nil || c.dying || c.pidNS.dying {
		return ErrNotRunning
	}
	for i, p := range r.pids {
		if err := r.takeLocked(p); err != nil {
			for _, q := range r.pids[:i] {
				q.ns.freeNumbersLocked(q, -1)
			}
			return err
		}
	}
	for _, tg := range r.groups {
		if err := r.queuesLocked(tg); err != nil {
			for _, q := range r.pids {
				q.ns.freeNumbersLocked(q, -1)
			}
			return err
		}
	}
	for id, ns := range r.spaces {
		var rec image.PIDNamespace
		if r.e.Get(image.KindPIDNamespace, id, &rec) != nil {
			continue // it was read before
		}
		if ns != c.pidNS || c.ownsPIDNS {
			ns.last = rec.Last
		}
		if tg, ok := image.Object[*ThreadGroup](r.e.Restorer, rec.Reaper); ok && ns.reaper == nil && tg.pid.nums[tg.pid.ns.level] == 1 && tg.pid.ns == ns {
			ns.reaper = tg
		}
		ns.dying = ns.dying || rec.Dying && ns != c.pidNS
	}
	for _, tg := range r.groups {
		if p := c.pidNS.reaper; r.grecs[tg].Adopted && p != nil && p != tg {
			tg.parent, tg.parentTask = p, p.leader
			p.children = append(p.children, tg)
		}
	}
	for _, t := range r.tasks {
		if t.exitState == exitNone {
			t.ctx = k.cfg.Platform.NewContext()
		}
		k.countTaskLocked(t, 1)
	}
	r.keepNumbersLocked()
	c.init, c.restored = init, r
	return nil
}

// fill restores the files and the memory of all tasks.
func (r *restored) fill() error {
	for _, t := range r.tasks {
		if t.exitState != exitNone {
			continue
		}
		if err := r.restoreFiles(t); err != nil {
			return fmt.Errorf("process %d (%s): %w", t.tg.pid.In(r.c.pidNS), t.Comm(), err)
		}
	}
	for _, tg := range r.groups {
		if err := tg.semUndo.Restore(r.e.Restorer, r.grecs[tg].SemUndo); err != nil {
			return err
		}
	}
	r.k.ipcs.Range(func(i, _ any) bool {
		i.(*IPCNamespace).SysV().Settle()
		return true
	})
	return nil
}

// futexes puts the tasks that wait for futexes back into their queues.
func (r *restored) futexes() error {
	if r.rec.Futexes == 0 {
		return nil
	}
	var rec image.Futexes
	if err := r.e.Get(image.KindFutexes, r.rec.Futexes, &rec); err != nil {
		return err
	}
	for _, x := range rec.Waiters {
		t, ok := image.Object[*Task](r.e.Restorer, x.Task)
		if !ok || r.trecs[t] == nil || t.run.kind != runReenter || t.reentry.futex != nil {
			return bad("a waiter for a futex")
		}
		t.reentry.used = true
		t.reentry.futex = futex.NewWoken()
		m, ok := image.Object[*mm.MM](r.e.Restorer, x.MM)
		// In a restore by stages, others may have run for a while: who waits
		// for a word that they have too looks at it again (futex(2) allows a
		// wake-up for no reason).
		if x.Woken || !ok || r.e.Needed != nil && !x.Private && !x.PI {
			continue
		}
		key, err := keyOf(m, x.Addr, x.Private)
		if err != nil {
			continue // what was mapped is not any more
		}
		w := futex.NewRestored(t.waiter, futex.State{
			Place: futex.Place{MM: m, Addr: x.Addr, Private: x.Private}, Bitset: x.Bitset, PI: x.PI, TID: x.TID,
		})
		if err := r.k.futexes.Queue(w, key, func() error { return nil }); err != nil {
			return err
		}
		t.reentry.futex = w
	}
	return nil
}

// undo ends the processes of a restore that failed.
func (r *restored) undo() {
	r.c.KillAll()
	for r.c.NumTasks() != 0 {
		time.Sleep(time.Millisecond)
	}
}

// startRestoredLocked lets all tasks of a restored container run.
func (c *Container) startRestoredLocked() {
	r := c.restored
	c.restored = nil
	r.setClock = r.setClock && c.k.quietLocked(c)
	r.clocks()
	for _, tg := range r.groups {
		tg.started = true
	}
	for _, arm := range r.arm {
		arm()
	}
	r.e.Start()
	for _, t := range r.tasks {
		if t.exitState == exitNone {
			t.start()
		}
	}
}

// restoreFP puts a floating point state together.
func (k *Kernel) restoreFP(ctx platform.Context, rec *image.FPState) error {
	if rec == nil {
		return nil
	}
	conv, ok := k.cfg.Platform.(platform.FPConverter)
	if !ok {
		return bad("the platform cannot restore floating point state")
	}
	st := platform.FPState{Legacy: rec.Legacy, InUse: rec.InUse}
	for _, c := range rec.Components {
		st.Components = append(st.Components, platform.FPComponent{Bit: c.Bit, Data: c.Data})
	}
	fp, err := conv.JoinFP(st)
	if err != nil {
		return err
	}
	if err := ctx.SetFPState(fp); err != nil {
		return bad("floating point state")
	}
	return nil
}
