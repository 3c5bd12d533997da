package vfs_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/arch"
	"runsc/sentry/fs/anon"
	"runsc/sentry/fs/dev"
	"runsc/sentry/fs/tmpfs"
	"runsc/sentry/mem"
	"runsc/sentry/pipe"
	"runsc/sentry/vfs"
)

func TestSaveFiles(t *testing.T) {
	w := pair(t, func(root, vol string) {
		hostFile(t, root+"/low", "0123456789")
		hostFile(t, root+"/lowgone", "lower gone")
		hostFile(t, vol+"/data", "abcdefghij")
		hostFile(t, vol+"/gone", "unlinked on the host")
	})
	c := w.c
	low := w.install(w.open("/low", unix.O_RDONLY))
	w.read(w.get(low), 3)
	data := w.install(w.open("/vol/data", unix.O_RDWR))
	w.read(w.get(data), 4)
	app := w.install(w.open("/tmp/log", unix.O_CREAT|unix.O_WRONLY|unix.O_APPEND|unix.O_NONBLOCK))
	w.write(w.get(app), "one ")
	dup := w.get(app)
	dup.IncRef()
	appDup, err := w.fds.Install(c, dup, 20, true)
	w.must(err)
	w.writeFile("/tmp/u", "unlinked")
	un := w.install(w.open("/tmp/u", unix.O_RDWR))
	w.must(vfs.UnlinkAt(c, w.at("/tmp/u")))
	gone := w.install(w.open("/vol/gone", unix.O_RDWR))
	w.must(vfs.UnlinkAt(c, w.at("/vol/gone")))
	lowgone := w.install(w.open("/lowgone", unix.O_RDONLY))
	w.must(vfs.UnlinkAt(c, w.at("/lowgone")))
	w.writeFile("/up", "upper gone")
	upgone := w.install(w.open("/up", unix.O_RDONLY))
	w.must(vfs.UnlinkAt(c, w.at("/up")))
	tmpfile := w.install(w.open("/tmp", unix.O_TMPFILE|unix.O_RDWR))
	w.write(w.get(tmpfile), "nameless")
	hello := w.install(w.open("/proc/hello", unix.O_RDONLY))
	w.read(w.get(hello), 6)
	null := w.install(w.open("/dev/null", unix.O_RDWR))
	path := w.install(w.open("/low", unix.O_PATH))
	w.must(vfs.MkdirAt(c, w.at("/tmp/dir"), 0o755))
	deleted := w.install(w.open("/tmp/dir", unix.O_RDONLY|unix.O_DIRECTORY))
	w.must(vfs.RmdirAt(c, w.at("/tmp/dir")))
	w.must(w.get(1).SetStatusFlags(c, unix.O_NONBLOCK|unix.O_APPEND))
	inos := map[int32]uint64{}
	for _, fd := range []int32{low, data, app, un, gone, lowgone, upgone, tmpfile, hello} {
		st, err := w.get(fd).Stat(c, unix.STATX_INO)
		w.must(err)
		inos[fd] = st.Ino
	}
	procNumber = 7
	n, _ := w.again()
	for fd, ino := range inos {
		if st, err := n.get(fd).Stat(c, unix.STATX_INO); err != nil || st.Ino != ino {
			t.Errorf("fd %d has inode %d, had %d: %v", fd, st.Ino, ino, err)
		}
	}
	for _, x := range []struct {
		fd   int32
		want string
	}{{low, "3456789"}, {data, "efghij"}, {un, "unlinked"}, {gone, "unlinked on the host"},
		{lowgone, "lower gone"}, {upgone, "upper gone"}, {hello, "world 7\n"}, {null, ""}} {
		if s := n.read(n.get(x.fd), 100); s != x.want {
			t.Errorf("fd %d has %q, want %q", x.fd, s, x.want)
		}
	}
	if n.get(app) != n.get(appDup) {
		t.Error("a shared description is not shared any more")
	}
	if _, fl, err := n.fds.GetFlags(appDup); err != nil || fl != unix.FD_CLOEXEC {
		t.Errorf("close-on-exec: %d, %v", fl, err)
	} else {
		n.get(appDup).DecRef() // GetFlags took one
	}
	n.write(n.get(app), "two")
	if s := n.readFile("/tmp/log"); s != "one two" {
		t.Errorf("log has %q", s)
	}
	if fl := n.get(app).StatusFlags(); fl != w.get(app).StatusFlags() {
		t.Errorf("flags %o", fl)
	}
	if fl := n.get(1).StatusFlags(); fl&unix.O_APPEND == 0 {
		t.Errorf("flags of stdout %o", fl)
	}
	if err := n.get(deleted).ReadDir(c, func(vfs.Dirent) bool { return true }); err != unix.ENOENT {
		t.Errorf("list a removed directory: %v", err)
	}
	root := n.fs.Root()
	defer root.DecRef()
	for fd, want := range map[int32]string{un: "/tmp/u (deleted)", gone: "/vol/gone (deleted)", deleted: "/tmp/dir (deleted)", lowgone: "/lowgone (deleted)"} {
		if s := n.get(fd).Path().String(root); s != want {
			t.Errorf("fd %d is %s, want %s", fd, s, want)
		}
	}
	if !n.get(path).IsPath() {
		t.Error("O_PATH is gone")
	}
	if _, err := vfs.OpenAt(c, vfs.At{FS: n.fs, Dir: n.get(deleted).Path(), Name: "x"}, unix.O_CREAT|unix.O_RDWR, 0); err != unix.ENOENT {
		t.Errorf("create in a removed directory: %v", err)
	}
	// The nameless file may still get a name.
	nameless := n.get(tmpfile)
	n.must(vfs.LinkAt(c, vfs.At{FS: n.fs, Dir: nameless.Path(), Flags: vfs.EmptyPath}, n.at("/tmp/named")))
	if s := n.readFile("/tmp/named"); s != "nameless" {
		t.Errorf("named file has %q", s)
	}
	// The new task's streams.
	n.write(n.get(1), "to stdout")
	b := make([]byte, 20)
	if k, err := n.out[1].Read(b); err != nil || string(b[:k]) != "to stdout" {
		t.Errorf("stdout got %q, %v", b[:k], err)
	}
	n.out[0].WriteString("input")
	if s := n.read(n.get(0), 10); s != "input" {
		t.Errorf("stdin has %q", s)
	}
	// Once more, to a task without streams, and from there to one with them.
	silent := newWorld(t, w.root, w.vol)
	t.Cleanup(silent.close)
	silent.newStream = func(int) (*vfs.File, error) { return dev.OpenNull(unix.O_RDWR), nil }
	silent.restore(n.save(false))
	if s := silent.read(silent.get(0), 10); s != "" {
		t.Errorf("no stdin has %q", s)
	}
	silent.write(silent.get(1), "lost")
	loud := newWorld(t, w.root, w.vol)
	t.Cleanup(loud.close)
	loud.restore(silent.save(false))
	loud.write(loud.get(1), "heard")
	if k, err := loud.out[1].Read(b); err != nil || string(b[:k]) != "heard" {
		t.Errorf("stdout got %q, %v", b[:k], err)
	}
	// Once more, from the copy.
	n2, _ := n.again()
	for _, fd := range []int32{gone, data} {
		st, err := n2.get(fd).Stat(c, unix.STATX_INO)
		old, _ := w.get(fd).Stat(c, unix.STATX_INO)
		if err != nil || st.Dev != old.Dev || st.Ino != old.Ino {
			t.Errorf("fd %d is %d:%d, was %d:%d", fd, st.Dev, st.Ino, old.Dev, old.Ino)
		}
	}
	f := n2.get(gone)
	if off, err := f.Seek(c, 0, unix.SEEK_SET); off != 0 || err != nil {
		t.Error(off, err)
	}
	if s := n2.read(f, 100); s != "unlinked on the host" {
		t.Errorf("the second copy has %q", s)
	}
}

func TestSaveDirStreams(t *testing.T) {
	w := pair(t, func(root, vol string) {
		for i := range 40 {
			hostFile(t, fmt.Sprintf("%s/m/low%d", root, i), "")
			hostFile(t, fmt.Sprintf("%s/only/f%d", root, i), "")
			hostFile(t, fmt.Sprintf("%s/f%d", vol, i), "")
		}
	})
	for i := range 40 {
		w.writeFile(fmt.Sprintf("/tmp/t%d", i), "")
		w.writeFile(fmt.Sprintf("/m/up%d", i), "")
	}
	dirs := []string{"/m", "/only", "/vol", "/tmp", "/proc"}
	var fds []int32
	var rest [][]string
	for _, d := range dirs {
		f := w.open(d, unix.O_RDONLY|unix.O_DIRECTORY)
		w.names(f, 13)
		fds = append(fds, w.install(f))
	}
	s := w.save(false)
	for _, fd := range fds {
		rest = append(rest, w.names(w.get(fd), 1000))
	}
	n := newWorld(t, w.root, w.vol)
	t.Cleanup(n.close)
	n.restore(s)
	for i, fd := range fds {
		same(t, dirs[i], rest[i], n.names(n.get(fd), 1000))
	}
}

func TestSavePipes(t *testing.T) {
	w := pair(t, nil)
	c := w.c
	r, x := pipe.NewPair()
	inode, ino := pipe.NewInode(r, 0, 0)
	inode.IncRef()
	name := fmt.Sprintf("pipe:[%d]", ino)
	rfd := w.install(vfs.NewPseudoFile(name, r, inode, unix.O_RDONLY))
	xfd := w.install(vfs.NewPseudoFile(name, x, inode, unix.O_WRONLY|unix.O_NONBLOCK))
	w.write(w.get(xfd), "in the pipe")
	if _, err := x.Pipe().SetSize(c, 1<<18); err != nil {
		t.Fatal(err)
	}
	w.must(vfs.MknodAt(c, w.at("/tmp/fifo"), unix.S_IFIFO|0o600, 0))
	w.must(vfs.MknodAt(c, w.at("/fifo"), unix.S_IFIFO|0o600, 0))
	var fifos []int32
	for _, p := range []string{"/tmp/fifo", "/fifo"} {
		f := w.open(p, unix.O_RDWR)
		w.write(f, "in "+p)
		fifos = append(fifos, w.install(f))
	}
	quiet := w.install(w.open("/fifo", unix.O_RDONLY|unix.O_NONBLOCK))
	n, _ := w.again()
	if s := n.read(n.get(rfd), 100); s != "in the pipe" {
		t.Errorf("pipe has %q", s)
	}
	if got := pipe.Of(n.get(xfd).Ops()).Pipe().Size(); got != 1<<18 {
		t.Errorf("size %d", got)
	}
	root := n.fs.Root()
	if s := n.get(rfd).Path().String(root); s != name {
		t.Errorf("pipe is called %s, was %s", s, name)
	}
	root.DecRef()
	n.write(n.get(xfd), "more")
	n.must(n.fds.Close(c, xfd))
	if s := n.read(n.get(rfd), 100); s != "more" {
		t.Errorf("pipe has %q", s)
	}
	for i, p := range []string{"/tmp/fifo", "/fifo"} {
		again := n.open(p, unix.O_RDONLY)
		if s := n.read(again, 100); s != "in "+p {
			t.Errorf("%s has %q", p, s)
		}
		again.DecRef()
		n.must(n.fds.Close(c, fifos[i]))
	}
	_ = quiet
}

func TestSaveAnon(t *testing.T) {
	w := pair(t, nil)
	c := w.c
	add := func(name string, ops vfs.FileOps, flags uint32) int32 {
		return w.install(vfs.NewAnonFile("anon_inode:"+name, ops, flags))
	}
	ev := add("[eventfd]", anon.NewEventfd(5, true), unix.O_RDWR|unix.O_NONBLOCK)
	tm := anon.NewTimerfd(w.clock, unix.CLOCK_MONOTONIC)
	tm.Set(int64(time.Hour), int64(time.Minute), false)
	rel := add("[timerfd]", tm, unix.O_RDWR)
	wall := anon.NewTimerfd(w.clock, unix.CLOCK_REALTIME)
	wall.Set(time.Now().Add(time.Hour).UnixNano(), 0, true)
	abs := add("[timerfd]", wall, unix.O_RDWR)
	ep := anon.NewEpoll()
	epfd := add("[eventpoll]", ep, unix.O_RDWR)
	w.must(ep.Add(w.get(ev), ev, unix.EPOLLIN, 11))
	w.must(ep.Add(w.get(rel), rel, unix.EPOLLIN|unix.EPOLLET, 12))
	outer := anon.NewEpoll()
	outfd := add("[eventpoll]", outer, unix.O_RDWR)
	w.must(outer.Add(w.get(epfd), epfd, unix.EPOLLIN|unix.EPOLLONESHOT, 13))
	// A member that is in no table is not in the image.
	lone := vfs.NewAnonFile("lone", anon.NewEventfd(1, false), unix.O_RDWR)
	w.must(ep.Add(lone, 99, unix.EPOLLIN, 14))
	in := anon.NewInotify()
	infd := add("inotify", in, unix.O_RDONLY)
	w.writeFile("/tmp/watched", "")
	p, err := vfs.LookupAt(c, w.at("/tmp"))
	w.must(err)
	wd, err := in.Add(p, unix.IN_CREATE|unix.IN_DELETE)
	p.DecRef()
	w.must(err)
	w.writeFile("/tmp/created", "")
	sig := add("[signalfd]", anon.NewSignalfd(source{&waitq.Queue{}}, 0x1234), unix.O_RDWR)
	mfd := tmpfs.New(c, tmpfs.Config{Memory: w.mf})
	mi := mfd.NewMemfd(c, 0o777)
	mops, err := mi.Open(c, nil, unix.O_RDWR)
	w.must(err)
	mf := vfs.NewPseudoFile("/memfd:x (deleted)", mops, mi, unix.O_RDWR)
	mfd.Release()
	w.write(mf, "sealed")
	w.must(mops.(vfs.Sealer).AddSeals(unix.F_SEAL_WRITE | unix.F_SEAL_SHRINK))
	memfd := w.install(mf)

	n, _ := w.again()
	lone.DecRef()
	e := n.get(ev).Ops().(*anon.Eventfd)
	if e.Count() != 5 {
		t.Errorf("eventfd has %d", e.Count())
	}
	if s := n.read(n.get(ev), 8); s != "\x01\x00\x00\x00\x00\x00\x00\x00" || e.Count() != 4 {
		t.Errorf("semaphore read %q", s)
	}
	for fd, want := range map[int32]int64{rel: int64(time.Minute), abs: 0} {
		v, iv := n.get(fd).Ops().(*anon.Timerfd).Get()
		if iv != want || v > int64(time.Hour) || v < int64(time.Hour-time.Minute) {
			t.Errorf("timer has %v, %v", time.Duration(v), time.Duration(iv))
		}
	}
	events := func(fd int32) (out []anon.Event) {
		ep := n.get(fd).Ops().(*anon.Epoll)
		_, err := ep.Wait(n.c, 10, -1, func(l []anon.Event) error {
			out = append(out, l...)
			return nil
		})
		n.must(err)
		return out
	}
	if got := events(outfd); len(got) != 1 || got[0].Data != 13 {
		t.Errorf("outer events %v", got)
	}
	if got := events(outfd); len(got) != 0 {
		t.Errorf("one-shot member reported again: %v", got)
	}
	if got := events(epfd); len(got) != 1 || got[0].Data != 11 {
		t.Errorf("events %v", got)
	}
	n.must(n.get(epfd).Ops().(*anon.Epoll).Delete(n.get(rel), rel))
	want := "\x01\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00created\x00"
	if s := n.read(n.get(infd), 100); !strings.HasPrefix(s, want) {
		t.Errorf("inotify read %q", s)
	}
	n.must(vfs.UnlinkAt(c, n.at("/tmp/watched")))
	if s := n.read(n.get(infd), 100); len(s) != 32 || s[4] != 0 || s[5] != 2 {
		t.Errorf("inotify read %q", s)
	}
	n.must(n.get(infd).Ops().(*anon.Inotify).Remove(wd))
	if m := n.get(sig).Ops().(*anon.Signalfd).Mask(); m != 0x1234 {
		t.Errorf("mask %x", m)
	}
	f := n.get(memfd)
	b := mem.KernelBuf(make([]byte, 10))
	if k, err := f.ReadAt(c, &b, 0); k != 6 || err != nil {
		t.Errorf("memfd: %d, %v", k, err)
	}
	if s := f.Ops().(vfs.Sealer).Seals(); s != unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK {
		t.Errorf("seals %x", s)
	}
	b = mem.KernelBuf([]byte("x"))
	if _, err := f.WriteAt(c, &b, 0); err != unix.EPERM {
		t.Errorf("write to a sealed file: %v", err)
	}
}

// source is a task without signals.
type source struct{ q *waitq.Queue }

func TestSaveLocks(t *testing.T) {
	w := pair(t, func(_, vol string) { hostFile(t, vol+"/l", "") })
	a := w.install(w.open("/tmp/l", unix.O_CREAT|unix.O_RDWR))
	h := w.install(w.open("/vol/l", unix.O_RDWR))
	w.must(w.get(a).Flock(w.c, unix.LOCK_EX))
	w.must(w.get(h).SetLock(w.c, w.fds, vfs.FileLock{Type: unix.F_WRLCK, Start: 10, Len: 5}, false))
	w.must(w.get(h).SetLock(w.c, nil, vfs.FileLock{Type: unix.F_RDLCK, Start: 100}, false))
	w.c.tgid = 9
	s := w.save(false)
	w.drop()
	n := newWorld(t, w.root, w.vol)
	t.Cleanup(n.close)
	n.restore(s)
	o := n.open("/tmp/l", unix.O_RDWR)
	defer o.DecRef()
	if err := o.Flock(n.c, unix.LOCK_SH|unix.LOCK_NB); err != unix.EAGAIN {
		t.Errorf("flock: %v", err)
	}
	v := n.open("/vol/l", unix.O_RDWR)
	defer v.DecRef()
	l, err := v.GetLock(n.c, vfs.NewFDTable(), vfs.FileLock{Type: unix.F_WRLCK, Start: 12, Len: 1})
	if err != nil || l.Type != unix.F_WRLCK || l.Start != 10 || l.Len != 5 || l.PID != 1 {
		t.Errorf("lock %+v, %v", l, err)
	}
	l, err = v.GetLock(n.c, nil, vfs.FileLock{Type: unix.F_WRLCK, Start: 200, Len: 1})
	if err != nil || l.Type != unix.F_RDLCK || l.Start != 100 || l.PID != -1 {
		t.Errorf("lock %+v, %v", l, err)
	}
	n.must(n.fds.Close(n.c, h))
	if l, err := v.GetLock(n.c, nil, vfs.FileLock{Type: unix.F_WRLCK, Start: 0, Len: 1000}); err != nil || l.Type != unix.F_UNLCK {
		t.Errorf("lock after close %+v, %v", l, err)
	}
}

func TestSaveMappings(t *testing.T) {
	w := pair(t, func(root, vol string) { hostFile(t, root+"/lib", "library") })
	var list []mem.Mappable
	for _, name := range []string{"/lib", "/tmp/shared"} {
		f := w.open(name, unix.O_CREAT|unix.O_RDWR)
		w.write(f, "mapped")
		m, err := f.Mappable(w.c)
		w.must(err)
		list = append(list, m)
	}
	n, got := w.again(list...)
	for i, m := range got {
		r, err := m.Region(0, 4096, false)
		n.must(err)
		b := make([]byte, 6)
		if _, err := unix.Pread(r.FD, b, r.Off); err != nil || string(b) != "mapped" {
			t.Errorf("mapping %d has %q, %v", i, b, err)
		}
		name, _, _ := m.MapName()
		if old, _, _ := list[i].MapName(); name != old {
			t.Errorf("mapping of %s, was %s", name, old)
		}
		m.DecRef()
		list[i].DecRef()
	}
}

func TestValidate(t *testing.T) {
	for _, change := range []struct {
		what string
		do   func(name string) error
	}{
		{"size", func(name string) error { return os.Truncate(name, 100) }},
		{"mtime", func(name string) error { return os.Chtimes(name, time.Unix(1, 0), time.Unix(1, 0)) }},
		{"", func(string) error { return nil }},
	} {
		t.Run(change.what, func(t *testing.T) {
			w := pair(t, func(root, vol string) { hostFile(t, vol+"/f", "x") })
			w.install(w.open("/vol/f", unix.O_RDONLY))
			s := w.save(true)
			w.must(change.do(w.vol + "/f"))
			n := newWorld(t, w.root, w.vol)
			t.Cleanup(n.close)
			_, err := n.tryRestore(s)
			if change.what == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), change.what) || !strings.Contains(err.Error(), "/vol/f") {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestSaveRefuses(t *testing.T) {
	w := pair(t, nil)
	w.install(vfs.NewPseudoFile("socket:[7]", stub{}, vfs.NewAnonInode(unix.S_IFSOCK|0o777, 0, 0), unix.O_RDWR))
	_, err := w.trySave(false)
	if err == nil || err.Error() != `fd 3: socket "socket:[7]" cannot be saved yet` {
		t.Error(err)
	}
}

type stub struct{}

func (stub) Release()                         {}
func (stub) Ready(mask waitq.Mask) waitq.Mask { return 0 }

func (source) DequeueSignal(arch.SigSet) (arch.SigInfo, bool) { return arch.SigInfo{}, false }
func (source) PendingSignals() arch.SigSet                    { return 0 }
func (s source) SignalQueue() *waitq.Queue                    { return s.q }
