package kernel_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"runsc/sentry/fs/tmpfs"
	"runsc/sentry/image"
	"runsc/sentry/kernel"
	"runsc/sentry/mem"
	"runsc/sentry/platform/systrap"
	"runsc/sentry/syscalls"
	"runsc/sentry/vfs"
)

// savedImage is the image of a container.
type savedImage struct {
	records    []byte
	pages, idx string
	frames     image.ID
	change     func(*kernel.RestoreEnv)
}

// save stops the container, saves it, and lets it run on.
func (r *rig) save() *savedImage {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := r.c.StopForSave(ctx); err != nil {
		r.t.Fatal("stop: ", err)
	}
	defer r.c.ResumeAfterSave()
	s, err := r.saveStopped()
	if err != nil {
		r.t.Fatal("save: ", err)
	}
	return s
}

func (r *rig) saveStopped() (*savedImage, error) {
	dir := r.t.TempDir()
	s := &savedImage{pages: filepath.Join(dir, "pages"), idx: filepath.Join(dir, "idx")}
	var buf bytes.Buffer
	w := image.NewWriter(&buf)
	set := &mem.FrameSet{}
	env := &kernel.SaveEnv{SaveEnv: &vfs.SaveEnv{Saver: image.NewSaver(w), Frames: set, Caller: vfs.KernelCaller()}}
	if err := r.c.Save(env); err != nil {
		return nil, err
	}
	if err := env.Finish(); err != nil {
		return nil, err
	}
	var err error
	if s.frames, err = r.k.MemFile().SaveFrames(env.Saver, set); err != nil {
		return nil, err
	}
	if _, err := w.Close(); err != nil {
		return nil, err
	}
	s.records = buf.Bytes()
	pages, err1 := os.Create(s.pages)
	idx, err2 := os.Create(s.idx)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	defer pages.Close()
	defer idx.Close()
	pw, err := image.NewPageWriter(pages, idx, false)
	if err != nil {
		return nil, err
	}
	if err := r.k.MemFile().WritePages(pw, set); err != nil {
		return nil, err
	}
	_, _, _, err = pw.Close()
	return s, err
}

// restore makes a new sandbox of an image; start it with startRestored.
func (s *savedImage) restore(t testing.TB) *rig {
	t.Helper()
	r, err := s.tryRestore(t)
	if err != nil {
		t.Fatal("restore: ", err)
	}
	return r
}

func (s *savedImage) tryRestore(t testing.TB) (*rig, error) {
	return s.tryRestoreBeside(t, func(*rig) {})
}

// tryRestoreBeside calls before in the new sandbox first.
func (s *savedImage) tryRestoreBeside(t testing.TB, before func(*rig)) (*rig, error) {
	mf, err := mem.New()
	if err != nil {
		t.Fatal(err)
	}
	p, err := systrap.New(systrap.Options{KeepFDs: []int{mf.FD()}})
	if err != nil {
		t.Fatal(err)
	}
	g, err := p.NewGroup()
	if err != nil {
		t.Fatal(err)
	}
	acct := mem.NewAccount(nil, 0)
	r := &rig{t: t, grp: g, plat: p, exitQ: make(chan exit, 100), patience: 20 * time.Second}
	var over atomic.Bool
	r.k = kernel.New(kernel.Config{
		MemFile: mf, Platform: p, Syscalls: syscalls.New(traceTo(t)), NumCPUs: 2,
		Log: func(level, line string) {
			if !over.Load() {
				t.Log(level, line)
			}
		},
	})
	t.Cleanup(func() {
		r.k.KillAll()
		if !r.k.WaitTasks(5 * time.Second) {
			t.Error("tasks of the copy are left")
		}
		over.Store(true)
		g.Close()
		p.Close()
		mf.Close()
	})
	before(r)
	r.c, err = r.k.NewContainer(kernel.ContainerConfig{
		ID: "copy", Group: g, Account: acct, Hostname: "newbox",
		OnExit: func(id string, status int) { r.exitQ <- exit{id, status} },
	})
	if err != nil {
		t.Fatal(err)
	}
	kr, err := image.NewReader(bytes.NewReader(s.records))
	if err != nil {
		return nil, err
	}
	x, err := image.LoadRecords(kr, func(image.Kind) bool { return true })
	if err != nil {
		return nil, err
	}
	pages, err1 := os.Open(s.pages)
	idx, err2 := os.Open(s.idx)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	defer idx.Close()
	pg, err := image.OpenPages(pages, idx)
	if err != nil {
		return nil, err
	}
	fm, err := mf.RestoreFrames(x, s.frames, pg, acct)
	if err != nil {
		return nil, err
	}
	env := &kernel.RestoreEnv{
		FrameMap: fm,
		RestoreEnv: &vfs.RestoreEnv{
			Restorer: x, Memory: mf, Account: acct, Frames: fm, Caller: vfs.KernelCaller(), Clock: r.k.Clock(),
			NewFS: func(typ, _, _ string) (vfs.Filesystem, error) {
				if typ == "tmpfs" {
					return tmpfs.New(vfs.KernelCaller(), tmpfs.Config{Memory: mf, Account: acct, Mode: 0o755}), nil
				}
				return nil, errors.New("no file system " + typ)
			},
		},
	}
	if s.change != nil {
		s.change(env)
	}
	if err := kernel.RestoreContainer(r.c, env); err != nil {
		env.Abort()
		fm.Abandon()
		return nil, err
	}
	if err := env.Finish(); err != nil {
		return nil, err
	}
	fm.Finish()
	fm.StartLoader(func(err error) {
		if err != nil {
			t.Error("loader: ", err)
		}
	})
	tg := r.c.InitProcess()
	tg.Leader().WithMountNamespace(func(ns *vfs.Namespace) { ns.IncRef(); r.ns = ns })
	r.root = r.ns.Root()
	return r, nil
}

func (r *rig) startRestored() {
	r.t.Helper()
	if err := r.c.InitProcess().Start(); err != nil {
		r.t.Fatal("start: ", err)
	}
}

// waitOut waits until init's output has a line.
func (r *rig) waitOut(line string) {
	r.t.Helper()
	for end := time.Now().Add(r.patience); !strings.Contains(r.read("/out."), line); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("no line %q in %q", line, r.read("/out."))
		}
	}
}

// other runs a shell in another container of the sandbox.
func (r *rig) other(script string) {
	r.t.Helper()
	bb, err := os.ReadFile(busyboxPath)
	if err != nil {
		r.t.Fatal(err)
	}
	c, err := r.k.NewContainer(kernel.ContainerConfig{ID: "other", Group: r.grp, Account: mem.NewAccount(nil, 0)})
	if err != nil {
		r.t.Fatal(err)
	}
	o := &rig{t: r.t, k: r.k, c: c}
	o.files(r.k.MemFile(), bb)
	o.start("", "/bin/sh", "-c", "mkfifo /tmp/p; echo there; exec "+script)
	o.patience = r.patience
	o.waitOut("there")
	time.Sleep(100 * time.Millisecond)
}

// TestSaveRestore saves guests in the middle of something; original and copy
// must both finish as if nothing had happened.
func TestSaveRestore(t *testing.T) {
	tests := []struct {
		name, script string
		after        time.Duration // from "ready" to the save
		want         string        // after ready
		status       int
	}{
		{"sleep loop", "echo ready; i=0; while [ $i -lt 6 ]; do sleep 0.1; i=$((i+1)); echo $i; done", 150 * time.Millisecond, "1\n2\n3\n4\n5\n6\n", 0},
		{"exit code", "echo ready; sleep 0.5; exit 7", 100 * time.Millisecond, "", 7},
		{"pipeline", "echo ready; (sleep 0.3; seq 100000) | sort -rn | head -2", 50 * time.Millisecond, "100000\n99999\n", 0},
		{"big pipe", "echo ready; dd if=/zero bs=1M count=1 2>/dev/null | (sleep 0.5; wc -c)", 200 * time.Millisecond, "1048576\n", 0},
		{"background", "sleep 0.6 & p=$!; echo ready; wait $p; echo $?", 100 * time.Millisecond, "0\n", 0},
		{"trap", "trap 'echo got' USR1; (sleep 0.4; kill -USR1 1; sleep 0.2) & echo ready; wait; wait; echo end", 100 * time.Millisecond, "got\nend\n", 0},
		{"stopped job", "sh -c 'sleep 0.2; echo a' & p=$!; kill -STOP $p; echo ready; sleep 0.5; echo b; kill -CONT $p; wait $p", 100 * time.Millisecond, "b\na\n", 0},
		{"zombie", "(exit 5) & p=$!; echo ready; sleep 0.4; wait $p; echo $?", 150 * time.Millisecond, "5\n", 0},
		{"read", "mkfifo /tmp/p; (sleep 0.4; echo x >/tmp/p) & echo ready; cat /tmp/p", 100 * time.Millisecond, "x\n", 0},
		{"timeout", "echo ready; timeout 1 sleep 9; echo $?", 300 * time.Millisecond, "Terminated\n143\n", 0},
		{"setsid", "setsid sh -c 'sleep 0.4; echo $$' & echo ready; wait; echo $$", 100 * time.Millisecond, "2\n1\n", 0},
		{"cwd and umask", "mkdir /tmp/d; cd /tmp/d; umask 077; echo ready; sleep 0.3; pwd; umask; touch f; ls -l f | cut -c1-10", 100 * time.Millisecond, "/tmp/d\n0077\n-rw-------\n", 0},
		{"hostname", "hostname mine; echo ready; sleep 0.3; hostname", 100 * time.Millisecond, "mine\n", 0},
		{"vfork", "echo ready; /bin/guest vforkwait; echo $?", 150 * time.Millisecond, "0\n", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if strings.Contains(tt.script, "/bin/guest") {
				t.Skip("not here")
			}
			r := newRig(t, 0, nil)
			r.write("/zero", make([]byte, 1<<20), 0o666)
			if err := vfs.LinkAt(vfs.KernelCaller(), r.at("/bin/busybox"), r.at("/bin/cut")); err != nil {
				t.Fatal(err)
			}
			r.start("", "/bin/sh", "-c", tt.script)
			r.waitOut("ready\n")
			time.Sleep(tt.after)
			img := r.save()
			t.Logf("%d bytes of records", len(img.records))
			if e := r.wait(); e.status != tt.status {
				t.Errorf("original: status %d", e.status)
			}
			if out := r.read("/out."); out != "ready\n"+tt.want {
				t.Errorf("original: %q", out)
			}
			for i := range 2 {
				c := img.restore(t)
				if i == 1 {
					// Once more, without having run.
					c.startRestored()
					img = c.save()
					c = img.restore(t)
				}
				c.startRestored()
				if e := c.wait(); e.status != tt.status {
					t.Errorf("copy: status %d", e.status)
				}
				if out := c.read("/out."); out != "ready\n"+tt.want {
					t.Errorf("copy %d: %q", i, out)
				}
			}
		})
	}
}

// chain runs argv as init, moving it to a new sandbox every step, and returns
// its output and status.
func (r *rig) chain(step time.Duration, argv ...string) (out string, status, moves int) {
	r.t.Helper()
	r.start("", argv...)
	for {
		select {
		case e := <-r.exitQ:
			return r.read("/out."), e.status, moves
		case <-time.After(step):
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		err := r.c.StopForSave(ctx)
		cancel()
		if err == kernel.ErrNotRunning {
			e := r.wait()
			return r.read("/out."), e.status, moves
		}
		if err != nil {
			r.t.Fatal("stop: ", err)
		}
		img, err := r.saveStopped()
		r.c.KillAll()
		r.c.ResumeAfterSave()
		if err != nil {
			r.t.Fatal("save: ", err)
		}
		if r.wait().status != 137 {
			r.t.Error("the original was not killed")
		}
		if r = img.restore(r.t); moves%2 == 1 {
			time.Sleep(5 * time.Millisecond)
		}
		r.startRestored()
		moves++
	}
}

// TestChainGuestChecks runs the checks of testdata/guest in a chain of sandboxes.
func TestChainGuestChecks(t *testing.T) {
	guest := buildGuest(t)
	for _, name := range strings.Fields(guestChecks) {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 0, nil)
			r.write("/bin/guest", guest, 0o755)
			out, status, n := r.chain(20*time.Millisecond, "/bin/sh", "-c", "/bin/guest "+name+"; exit $?")
			if status != 0 || !strings.Contains(out, "ok ") {
				t.Errorf("status %d: %s", status, out)
			}
			t.Log(n, " moves")
		})
	}
}

// TestChainProcessChecks runs the checks of testdata/c/process.c likewise.
func TestChainProcessChecks(t *testing.T) {
	b := buildC(t, "process.c")
	r := newRig(t, 0, nil)
	r.write("/bin/process", b, 0o755)
	out, status, n := r.chain(200*time.Millisecond, "/bin/sh", "-c", "/bin/process; exit $?")
	if status != 0 || strings.Contains(out, "FAIL") || !strings.Contains(out, "ok cpulimit") {
		t.Errorf("status %d\n%s", status, out)
	}
	t.Log(n, " moves")
}

// TestSaveCases runs testdata/c/ckpt.c: original and copies must not notice.
func TestSaveCases(t *testing.T) {
	b := buildC(t, "ckpt.c")
	r := newRig(t, 0, nil)
	r.write("/bin/ckpt", b, 0o755)
	r.start("", "/bin/sh", "-c", "/bin/ckpt "+os.Getenv("CKPT_CASE")+"; exit $?")
	r.waitOut("ready\n")
	time.Sleep(300 * time.Millisecond)
	img := r.save()
	if e := r.wait(); e.status != 0 {
		t.Errorf("original: status %d: %s", e.status, r.read("/out."))
	}
	for range 2 {
		c := img.restore(t)
		c.startRestored()
		time.Sleep(200 * time.Millisecond)
		img = c.save()
		if e := c.wait(); e.status != 0 || !strings.HasSuffix(c.read("/out."), "ok all\n") {
			t.Errorf("copy: status %d: %s", e.status, c.read("/out."))
		}
	}
}
