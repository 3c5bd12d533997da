package kernel

import (
	"errors"
	"fmt"

	"runsc/pkg/abi"
	"runsc/sentry/cred"
	"runsc/sentry/futex"
	"runsc/sentry/image"
	"runsc/sentry/loader"
	"runsc/sentry/mem"
	"runsc/sentry/mm"
	"runsc/sentry/platform"
	"runsc/sentry/seccompbpf"
	"runsc/sentry/vfs"
)

// SaveEnv is what the records of a container are written with. Whoever makes it
// calls Finish when all containers of the image are saved.
type SaveEnv struct {
	*vfs.SaveEnv
	// MM may be nil: it is made of the rest.
	MM *mm.SaveEnv
}

// RestoreEnv is what a container is restored with. Whoever makes it calls
// Finish, or Abort, when all containers are restored; or Settle and Cancel
// after each, and Close at the end.
type RestoreEnv struct {
	*vfs.RestoreEnv
	// FrameMap is the memory of the image.
	FrameMap *mem.FrameMap
	// MM may be nil: it is made of the rest.
	MM *mm.RestoreEnv
	// Seccomp is the profile of the new specification, which holds for every
	// task; nil for none.
	Seccomp seccompbpf.Filter
	// Cred are the credentials of the new specification: no task gets a
	// capability that its bounding set lacks, and no_new_privs holds. Nil
	// leaves the image's.
	Cred *cred.Creds
	// Source is the id of the saved container; empty for the only one.
	Source string

	kept []keptNumber // k.mu guards
}

// KnownState tells whether records of a kind are this package's.
func KnownState(kind image.Kind) bool {
	return kind >= image.KindContainer && kind <= image.KindSysVMsgQueue
}

// vdsoState is what a vDSO has for save and restore.
type vdsoState interface {
	Layout() uint64
	// Reset is called after the clock was set.
	Reset()
}

// vdso returns the sandbox's vDSO and its layout.
func (k *Kernel) vdso() (mem.Mappable, uint64) {
	if k.cfg.VDSO == nil {
		return nil, 0
	}
	layout := uint64(0)
	if v, ok := k.cfg.VDSO.(vdsoState); ok {
		layout = v.Layout()
	}
	return k.cfg.VDSO.Mappable(), layout
}

var _ loader.VDSO // the interface that vdsoState adds to

// containerSaver is a save under way.
type containerSaver struct {
	c      *Container
	k      *Kernel
	e      *SaveEnv
	rec    image.Container
	groups []*ThreadGroup
	in     map[*ThreadGroup]bool
	trecs  map[*Task]*image.Task
	grecs  map[*ThreadGroup]*image.ThreadGroup
	tasks  []*Task
	spaces map[*PIDNamespace]bool
	puts   []func() error
	// places has what each waiter of a futex belongs to.
	places map[*futex.Waiter]*Task
}

// Save writes the records of the container, whose tasks StopForSave stopped:
// its processes but those that exec made, and all that they refer to.
func (c *Container) Save(env *SaveEnv) error {
	if c.freezer.saving.Load() != saveCut {
		return errors.New("the container's tasks are not stopped for a save")
	}
	defer c.k.clock.Freeze()()
	s := &containerSaver{
		c: c, k: c.k, e: env, in: map[*ThreadGroup]bool{}, trecs: map[*Task]*image.Task{}, places: map[*futex.Waiter]*Task{},
		grecs: map[*ThreadGroup]*image.ThreadGroup{}, spaces: map[*PIDNamespace]bool{},
	}
	if env.MM == nil {
		env.MM = &mm.SaveEnv{
			Saver: env.Saver, Frames: env.Frames,
			SaveMappable: func(m mem.Mappable) (image.ID, error) { return vfs.SaveMappable(env.SaveEnv, m) },
			SaveRef: func(r mm.Ref) (image.ID, error) {
				f, ok := r.(*vfs.File)
				if !ok {
					return 0, fmt.Errorf("the program is a %T", r)
				}
				return vfs.SaveFile(env.SaveEnv, f)
			},
		}
		env.MM.VDSO, env.MM.VDSOLayout = c.k.vdso()
	}
	env.TaskID = func(task any) image.ID {
		t, ok := task.(*Task)
		if !ok {
			return 0
		}
		return env.Known(t)
	}
	env.Part()
	s.collect()
	for _, put := range s.puts {
		if err := put(); err != nil {
			return err
		}
	}
	for _, t := range s.tasks {
		if err := s.saveTask(t); err != nil {
			return fmt.Errorf("process %d (%s): %w", t.tg.pid.In(c.pidNS), t.Comm(), err)
		}
	}
	for _, tg := range s.groups {
		s.saveTimers(tg)
		s.grecs[tg].SemUndo = tg.semUndo.Save(s.e.Saver)
		if err := env.Put(image.KindThreadGroup, s.grecs[tg]); err != nil {
			return err
		}
	}
	if err := s.saveFutexes(); err != nil {
		return err
	}
	s.rec.Shares = env.Shared()
	return env.Put(image.KindContainer, &s.rec)
}

// id numbers an object and has its record written, by put, if it is new.
func (s *containerSaver) id(obj any, put func(id image.ID) error) image.ID {
	id, fresh := s.e.ID(obj)
	if fresh {
		s.puts = append(s.puts, func() error { return put(id) })
	}
	return id
}

// collect finds the processes and makes the records of all that k.mu guards.
func (s *containerSaver) collect() {
	k, c := s.k, s.c
	k.mu.Lock()
	defer k.mu.Unlock()
	s.rec.ID, _ = s.e.ID(c)
	s.rec.Name = c.cfg.ID
	s.rec.Monotonic, s.rec.Boottime, s.rec.Realtime = k.clock.Monotonic(), k.clock.Boottime(), k.clock.Realtime()
	s.rec.Uptime = s.rec.Monotonic - k.start.Load()
	s.addGroups()
	for _, tg := range s.groups {
		s.e.ID(tg)
		for _, t := range tg.tasks {
			s.e.ID(t)
			s.tasks = append(s.tasks, t)
		}
	}
	s.namespaceID(c.pidNS)
	s.rec.UTS, s.rec.IPC = s.utsID(c.uts), s.ipcID(c.ipc)
	s.rec.Init = s.e.Known(c.init)
	for _, tg := range s.groups {
		s.rec.Groups = append(s.rec.Groups, s.e.Known(tg))
		s.grecs[tg] = s.groupRecord(tg)
		tg.sigmu.Lock()
		for _, t := range tg.tasks {
			s.trecs[t] = s.taskRecord(t)
		}
		tg.sigmu.Unlock()
	}
	s.vforks()
	for _, tg := range s.groups {
		s.namespaceID(tg.pid.ns)
	}
}

// addGroups lists the processes of the image, parents before children.
func (s *containerSaver) addGroups() {
	seen := map[*ThreadGroup]bool{}
	for t := range s.c.tasks {
		if tg := t.tg; !tg.execBorn && (tg.started || tg.exitState != exitNone) {
			seen[tg] = true
		}
	}
	var roots []*ThreadGroup
	for tg := range seen {
		if tg.parent == nil || !seen[tg.parent] {
			roots = append(roots, tg)
		}
	}
	sortBy(roots, func(tg *ThreadGroup) int32 { return tg.pid.In(s.c.pidNS) })
	s.in = seen
	s.groups = roots
	for i := 0; i < len(s.groups); i++ {
		for _, ch := range s.groups[i].children {
			if seen[ch] {
				s.groups = append(s.groups, ch)
			}
		}
	}
}

// namespaceID numbers a pid namespace of the container.
func (s *containerSaver) namespaceID(ns *PIDNamespace) image.ID {
	if ns == nil {
		return 0
	}
	id, fresh := s.e.ID(ns)
	if fresh || !s.spaces[ns] {
		s.spaces[ns] = true
		rec := image.PIDNamespace{ID: id, Last: ns.last, Dying: ns.dying}
		if ns != s.c.pidNS {
			rec.Parent = s.namespaceID(ns.parent)
		}
		if ns.reaper != nil && s.in[ns.reaper] {
			rec.Reaper = s.e.Known(ns.reaper)
		}
		s.rec.PIDNamespaces = append(s.rec.PIDNamespaces, id)
		if fresh {
			s.puts = append(s.puts, func() error { return s.e.Put(image.KindPIDNamespace, &rec) })
		}
	}
	return id
}

func (s *containerSaver) pidID(p *PID) image.ID {
	return s.id(p, func(id image.ID) error {
		return s.e.Put(image.KindPID, &image.PID{ID: id, Namespace: s.e.Known(p.ns), Numbers: p.nums[s.c.pidNS.level:]})
	})
}

func (s *containerSaver) pgrpID(pg *processGroup) image.ID {
	if pg == nil {
		return 0
	}
	ss := pg.session
	session := s.id(ss, func(id image.ID) error {
		return s.e.Put(image.KindSession, &image.Session{ID: id, PID: s.e.Known(ss.id), Leader: s.e.Known(ss.leader)})
	})
	s.pidID(ss.id)
	s.namespaceID(ss.id.ns)
	s.pidID(pg.id)
	s.namespaceID(pg.id.ns)
	return s.id(pg, func(id image.ID) error {
		return s.e.Put(image.KindProcessGroup, &image.ProcessGroup{ID: id, PID: s.e.Known(pg.id), Session: session})
	})
}

func (s *containerSaver) utsID(u *UTSNamespace) image.ID {
	if u == nil {
		return 0
	}
	return s.id(u, func(id image.ID) error {
		u.mu.Lock()
		defer u.mu.Unlock()
		return s.e.Put(image.KindUTS, &image.UTS{ID: id, Host: []byte(u.host), Domain: []byte(u.domain), HostSet: u.hostSet})
	})
}

func (s *containerSaver) ipcID(i *IPCNamespace) image.ID {
	if i == nil {
		return 0
	}
	return s.id(i, func(id image.ID) error { return i.save(s.e, id) })
}

// vforks tells the children of vfork whom they hold up. A parent whose child
// is through goes on.
func (s *containerSaver) vforks() {
	for _, p := range s.tasks {
		if p.run.kind != runVfork || len(p.run.vfork.C) != 0 {
			continue
		}
		for _, ch := range s.tasks {
			if ch.vforkDone.Load() == p.run.vfork {
				s.trecs[ch].Vfork = s.e.Known(p)
				s.trecs[p].Run = image.RunVfork
			}
		}
	}
}

// saveFutexes writes who waits for which futex, in order.
func (s *containerSaver) saveFutexes() error {
	rec := &image.Futexes{}
	s.k.futexes.Each(func(w *futex.Waiter, st futex.State) {
		t := s.places[w]
		if t == nil {
			return
		}
		delete(s.places, w)
		x := image.FutexWaiter{
			Task: s.e.Known(t), Addr: st.Place.Addr, Private: st.Place.Private, Bitset: st.Bitset, PI: st.PI, TID: st.TID,
		}
		if m, ok := st.Place.MM.(*mm.MM); ok {
			x.MM = s.e.Known(m)
		}
		// The address space that a requeue named may be gone: a spurious
		// wake-up is allowed.
		x.Woken = x.MM == 0
		rec.Waiters = append(rec.Waiters, x)
	})
	for _, t := range s.tasks {
		if w := t.reentry.futex; w != nil && s.places[w] == t {
			rec.Waiters = append(rec.Waiters, image.FutexWaiter{Task: s.e.Known(t), Woken: true})
		}
	}
	if len(rec.Waiters) == 0 {
		return nil
	}
	s.rec.Futexes, _ = s.e.ID(rec)
	rec.ID = s.rec.Futexes
	return s.e.Put(image.KindFutexes, rec)
}

// trimmed returns the bytes of a flat structure without the zeros at its end.
func trimmed[T any](p *T) []byte {
	b := abi.Bytes(p)
	n := len(b)
	for n > 0 && b[n-1] == 0 {
		n--
	}
	return append([]byte{}, b[:n]...)
}

// saveFP takes apart the floating point state; nil is the initial one.
func (k *Kernel) saveFP(ctx platform.Context) (*image.FPState, error) {
	fp := ctx.FPState()
	if fp == nil {
		return nil, nil
	}
	conv, ok := k.cfg.Platform.(platform.FPConverter)
	if !ok {
		return nil, errors.New("the platform cannot save floating point state")
	}
	st, err := conv.SplitFP(fp)
	if err != nil {
		return nil, err
	}
	rec := &image.FPState{Legacy: st.Legacy, InUse: st.InUse}
	for _, c := range st.Components {
		rec.Components = append(rec.Components, image.FPComponent{Bit: c.Bit, Data: c.Data})
	}
	return rec, nil
}
