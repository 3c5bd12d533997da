package kernel

import (
	"path"

	"golang.org/x/sys/unix"

	"runsc/pkg/abi/linux"
	"runsc/pkg/waitq"
	"runsc/sentry/arch"
	"runsc/sentry/cred"
	"runsc/sentry/loader"
	"runsc/sentry/mem"
	"runsc/sentry/mm"
	"runsc/sentry/vfs"
)

// ExecArgs are the arguments of execve(2) and execveat(2).
type ExecArgs struct {
	At vfs.At
	// Filename is what the program is told (AT_EXECFN) and named after.
	Filename  string
	Argv, Env []string
	// Inaccessible: Filename does not work after exec (a close-on-exec fd).
	Inaccessible bool
}

// execImage is a program that is loaded and waits to replace the old one.
type execImage struct {
	mm     *mm.MM
	image  loader.Image
	cred   *cred.Creds
	comm   string
	secure bool // AT_SECURE
	nodump bool // not dumpable
	// others is woken as threads of the group go.
	others *waitq.Waiter
}

func (x *execImage) drop() { x.mm.DecUsers() }

// execFile makes an open file what the loader wants.
type execFile struct {
	t *Task
	f *vfs.File
}

func (x execFile) ReadAtKernel(p []byte, off int64) (int, error) {
	buf := mem.KernelBuf(p)
	return x.f.ReadAt(x.t, &buf, off)
}

func (x execFile) Mappable() (mem.Mappable, error) { return x.f.Mappable(x.t) }

func (x execFile) Path() string {
	root := x.t.fs.Root()
	defer root.DecRef()
	return x.f.Path().String(root)
}

func (x execFile) Release() { x.f.DecRef() }

// Exec is execve(2): on success the new program starts when the call returns to
// the run loop, after the other threads are gone. Errors leave everything as
// it was. Own.
func (t *Task) Exec(a *ExecArgs) error {
	x, err := t.loadProgram(a)
	if err != nil {
		return err
	}
	t.k.mu.Lock()
	t.tg.sigmu.Lock()
	if t.tg.sig.exiting || t.tg.execer != nil {
		// Another thread ends this one.
		t.tg.sigmu.Unlock()
		t.k.mu.Unlock()
		x.drop()
		return unix.EAGAIN
	}
	x.others = waitq.NewWaiter()
	t.run = runState{kind: runExec, exec: x}
	t.tg.execer = t
	for _, o := range t.tg.tasks {
		if o != t {
			o.killLocked()
		}
	}
	t.tg.sigmu.Unlock()
	t.k.mu.Unlock()
	t.skipReturn = true
	return nil
}

// loadProgram does all of exec that may fail.
func (t *Task) loadProgram(a *ExecArgs) (*execImage, error) {
	f, err := vfs.OpenExec(t, a.At)
	if err != nil {
		return nil, err
	}
	var opened []*vfs.File
	e := &loader.Exec{
		File: execFile{t, f}, Filename: a.Filename, Argv: a.Argv, Envv: a.Env, Inaccessible: a.Inaccessible,
		StackLimit: t.Rlimit(unix.RLIMIT_STACK), VDSO: t.k.cfg.VDSO, CPUMask: t.k.cfg.CPUMask,
		NoRandom: t.misc.personality.Load()&addrNoRandomize != 0,
		Open: func(name string) (loader.Executable, error) {
			f, err := vfs.OpenExec(t, vfs.At{FS: t.fs, Name: name})
			if err != nil {
				return nil, err
			}
			opened = append(opened, f)
			return execFile{t, f}, nil
		},
	}
	defer func() { e.File.Release() }()
	if err := e.Prepare(); err != nil {
		return nil, err
	}
	x := &execImage{comm: path.Base(a.Filename)}
	prog := e.File.(execFile).f
	st, err := prog.Stat(t, unix.STATX_MODE|unix.STATX_UID|unix.STATX_GID)
	if err != nil {
		return nil, err
	}
	if x.cred, x.secure, err = t.execCreds(prog, &st); err != nil {
		return nil, err
	}
	// would_dump: a program that its user may not read is not to be looked into.
	x.nodump = vfs.CheckMode(t.Cred(), &st, vfs.MayRead) != nil
	e.UID, e.EUID, e.GID, e.EGID = x.cred.UID, x.cred.EUID, x.cred.GID, x.cred.EGID
	e.Secure = x.secure
	x.mm = mm.New(t.k.cfg.MemFile, t.container.cfg.Account, t.container.cfg.Group, t.tg.limit)
	if x.image, err = e.Load(x.mm); err != nil {
		x.drop()
		return nil, err
	}
	for _, f := range opened {
		if f != prog {
			f.AllowWrite() // the dynamic linker can be written while it is mapped
		}
	}
	prog.IncRef()
	x.mm.SetExe(prog)
	return x, nil
}

// addrNoRandomize is ADDR_NO_RANDOMIZE of personality(2).
const addrNoRandomize = 0x0040000

// finishExec waits for the other threads and makes the task the new program
// (begin_new_exec, start_thread). It returns false if the task was killed.
func (t *Task) finishExec() bool {
	x := t.run.exec
	for !t.aloneForExec() {
		if t.BlockKillable(x.others, 0) != nil && t.killed.Load() {
			t.k.mu.Lock()
			t.tg.execer = nil
			t.k.mu.Unlock()
			t.run = runState{}
			x.drop()
			return false
		}
	}
	t.run = runState{}
	t.commitExec(x)
	return true
}

// aloneForExec tells whether all other threads are gone; the task then takes
// the leader's place, if it is not the leader (de_thread).
func (t *Task) aloneForExec() bool {
	k, tg := t.k, t.tg
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, o := range tg.tasks {
		if o != t && (o != tg.leader || o.exitState == exitNone) {
			return false
		}
	}
	tg.execer = nil
	if old := tg.leader; old != t {
		// The old leader takes our identity away with it.
		own := t.PID()
		tg.pid.task, own.task = t, old
		t.pid.Store(tg.pid)
		old.pid.Store(own)
		tg.leader = t
		old.releaseLocked()
		t.wakeExitQueuesLocked()
	}
	tg.exitSignal = int32(unix.SIGCHLD)
	tg.didExec = true
	return true
}

// commitExec is past the point of no return.
func (t *Task) commitExec(x *execImage) {
	tg := t.tg
	if t.mm != nil {
		t.mmRelease()
		t.noteRSS()
	}
	if old := t.replaceMM(x.mm); old != nil {
		old.DecUsers()
	}
	tg.deleteTimers()
	t.UnshareFiles()
	t.files.CloseOnExec(t)

	tg.sigmu.Lock()
	if h := tg.sig.handlers; h.refs.Load() > 1 {
		n := h.copy()
		h.refs.Add(-1)
		tg.sig.handlers = n
	}
	tg.sig.handlers.resetForExec(false)
	t.sig.altStack = arch.SigStack{Flags: linux.SS_DISABLE}
	tg.sigmu.Unlock()

	t.SetComm(x.comm)
	t.SetCred(x.cred)
	dumpable := int32(1)
	if x.nodump || x.secure {
		dumpable = 0
	}
	tg.dumpable.Store(dumpable)
	if x.secure {
		t.k.mu.Lock()
		t.pdeathSig = 0
		t.k.mu.Unlock()
	}
	t.userAddr = taskAddrs{}
	t.restart = restartState{}
	t.regs = arch.Regs{Rip: x.image.Entry, Rsp: x.image.SP, Eflags: eflagsInit, OrigRax: ^uint64(0)}
	t.ctx.SetFPState(nil)
}

// eflagsInit is IF and the bit that is always set.
const eflagsInit = 0x202
