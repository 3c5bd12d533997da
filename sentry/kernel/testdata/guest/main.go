// Command guest is the program that the kernel's tests run inside the sandbox.
// It must also pass on a native Linux. Each argument names a check; the
// first that fails ends it with status 1.
package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

var checks = map[string]func(){
	"threads": threads, "segv": segv, "exec": execMany, "execthread": execThread, "after-exec": afterExec,
	"notify": notify, "itimer": itimer, "sleep": sleep, "waitid": waitid, "pidfd": pidfd, "sigqueue": sigqueue,
	"sigwait": sigwait, "leader": leader, "subreaper": subreaper, "pdeathsig": pdeathsig, "pidns": pidns, "pgrp": pgrp,
	"restart": restart, "futextimeout": futexTimeout, "timer": posixTimer, "rlimit": rlimits, "badframe": badFrame,
	"nocldwait": nocldwait, "stopwait": stopWait, "setuid": setuid, "gc": gc, "int80": int80, "killthreads": killThreads,
	"processvm": processvm, "sysvshm": sysvshm, "sysvsem": sysvsem, "sysvmsg": sysvmsg, "hog": hog, "spin": spin, "forks": forks,
}

func main() {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "child-") {
		child(os.Args[1])
		return
	}
	for _, name := range os.Args[1:] {
		f := checks[name]
		if f == nil {
			fatal("no check ", name)
		}
		f()
		fmt.Println("ok", name)
	}
}

func fatal(a ...any) {
	fmt.Println(append([]any{"FAIL:"}, a...)...)
	os.Exit(1)
}

func must(err error, what ...any) {
	if err != nil {
		_, file, line, _ := runtime.Caller(1)
		fatal(file, line, err, fmt.Sprint(what...))
	}
}

func want(ok bool, what ...any) {
	if !ok {
		_, file, line, _ := runtime.Caller(1)
		fatal(file, line, fmt.Sprint(what...))
	}
}

func call(nr uintptr, a ...uintptr) (uintptr, syscall.Errno) {
	var r [6]uintptr
	copy(r[:], a)
	v, _, e := syscall.Syscall6(nr, r[0], r[1], r[2], r[3], r[4], r[5])
	return v, e
}

func self(arg ...string) *exec.Cmd {
	c := exec.Command("/proc/self/exe", arg...)
	if _, err := os.Stat("/proc/self/exe"); err != nil {
		c = exec.Command(os.Args[0], arg...)
	}
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	return c
}

func child(name string) {
	switch name {
	case "child-true":
	case "child-semundo":
		id, _ := strconv.Atoi(os.Getenv("SEM"))
		childSemundo(id)
	case "child-exit3":
		os.Exit(3)
	case "child-sleep":
		time.Sleep(time.Minute)
	case "child-stop":
		syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		os.Exit(5)
	case "child-orphan":
		c := self("child-orphan2")
		must(c.Start())
		fmt.Println(c.Process.Pid)
	case "child-orphan2":
		time.Sleep(200 * time.Millisecond)
	case "child-pdeath":
		// The grandchild is to die with this process.
		c := self("child-sleep")
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		runtime.LockOSThread()
		must(c.Start())
		fmt.Println(c.Process.Pid)
	case "child-ns":
		if os.Getpid() != 1 {
			fatal("pid in new namespace is ", os.Getpid())
		}
		c := self("child-sleep")
		must(c.Start())
		must(self("child-true").Run())
		want(syscall.Kill(1, syscall.SIGKILL) == nil, "kill 1")
		os.Exit(6)
	}
}

func threads() {
	var mu sync.Mutex
	var wg sync.WaitGroup
	n := 0
	for range 32 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			runtime.LockOSThread() // the thread dies with the goroutine
			for range 300 {
				mu.Lock()
				n++
				mu.Unlock()
				if n%50 == 0 {
					time.Sleep(time.Microsecond)
				}
			}
		}()
	}
	wg.Wait()
	want(n == 32*300, n)
}

//go:noinline
func deref(p *int) int { return *p }

func segv() {
	defer func() {
		e, ok := recover().(runtime.Error)
		want(ok && strings.Contains(e.Error(), "nil pointer"), e)
	}()
	deref(nil)
	fatal("no fault")
}

func execMany() {
	var wg sync.WaitGroup
	for range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 5 {
				must(self("child-true").Run())
				err := self("child-exit3").Run()
				var ee *exec.ExitError
				want(errors.As(err, &ee) && ee.ExitCode() == 3, err)
			}
		}()
	}
	wg.Wait()
}

func execThread() {
	pid := os.Getpid()
	done := make(chan bool)
	for range 5 {
		go func() { runtime.LockOSThread(); <-done }()
	}
	go func() {
		runtime.LockOSThread()
		for syscall.Gettid() == pid {
			fatal("goroutine on the main thread")
		}
		os.Setenv("OLDPID", fmt.Sprint(pid))
		must(syscall.Exec(os.Args[0], []string{os.Args[0], "after-exec"}, os.Environ()))
	}()
	runtime.LockOSThread()
	select {}
}

func afterExec() {
	want(os.Getenv("OLDPID") == fmt.Sprint(os.Getpid()), "pid changed")
	runtime.LockOSThread()
	// The program's first thread has the old leader's id.
	want(syscall.Kill(os.Getpid(), 0) == nil, "kill self")
	_, e := call(syscall.SYS_TGKILL, uintptr(os.Getpid()), uintptr(os.Getpid()), 0)
	want(e == 0, "leader's tid: ", e)
}

func notify() {
	c := make(chan os.Signal, 10)
	signal.Notify(c, syscall.SIGUSR1, syscall.SIGTERM)
	for range 20 {
		must(syscall.Kill(os.Getpid(), syscall.SIGUSR1))
		select {
		case <-c:
		case <-time.After(5 * time.Second):
			fatal("no signal")
		}
	}
	signal.Reset()
}

func itimer() {
	c := make(chan os.Signal, 10)
	signal.Notify(c, syscall.SIGALRM)
	it := [4]int64{0, 20000, 0, 20000}
	_, e := call(syscall.SYS_SETITIMER, 0, uintptr(unsafe.Pointer(&it)), 0)
	want(e == 0, e)
	for range 3 {
		select {
		case <-c:
		case <-time.After(5 * time.Second):
			fatal("no alarm")
		}
	}
	it = [4]int64{}
	call(syscall.SYS_SETITIMER, 0, uintptr(unsafe.Pointer(&it)), 0)
	signal.Reset()
	// CPU time.
	signal.Notify(c, syscall.SIGVTALRM)
	it = [4]int64{0, 0, 0, 10000}
	call(syscall.SYS_SETITIMER, 1, uintptr(unsafe.Pointer(&it)), 0)
	end := time.Now().Add(5 * time.Second)
	for {
		select {
		case <-c:
			signal.Reset()
			return
		default:
		}
		want(time.Now().Before(end), "no SIGVTALRM")
	}
}

func sleep() {
	start := time.Now()
	ts := syscall.Timespec{Nsec: 50e6}
	for syscall.Nanosleep(&ts, &ts) == syscall.EINTR {
		// The runtime's own signals.
	}
	d := time.Since(start)
	want(d >= 50*time.Millisecond && d < 2*time.Second, d)
}

func waitid() {
	c := self("child-exit3")
	must(c.Start())
	var info [128]byte
	_, e := call(syscall.SYS_WAITID, 1, uintptr(c.Process.Pid), uintptr(unsafe.Pointer(&info)), syscall.WEXITED|syscall.WNOWAIT)
	want(e == 0, e)
	le := binary.LittleEndian
	want(le.Uint32(info[0:]) == uint32(syscall.SIGCHLD) && le.Uint32(info[8:]) == 1, "signo, code")
	want(le.Uint32(info[16:]) == uint32(c.Process.Pid) && le.Uint32(info[24:]) == 3, "pid, status")
	err := c.Wait()
	var ee *exec.ExitError
	want(errors.As(err, &ee) && ee.ExitCode() == 3, err)
	_, e = call(syscall.SYS_WAITID, 1, uintptr(c.Process.Pid), 0, syscall.WEXITED)
	want(e == syscall.ECHILD, e)
	_, e = call(syscall.SYS_WAITID, 0, 0, 0, 0)
	want(e == syscall.EINVAL, e)
}

func pidfd() {
	c := self("child-sleep")
	must(c.Start())
	fd, e := call(434, uintptr(c.Process.Pid), 0)
	want(e == 0, e)
	pfd := struct {
		fd      int32
		ev, rev int16
	}{int32(fd), 1, 0}
	n, e := call(syscall.SYS_POLL, uintptr(unsafe.Pointer(&pfd)), 1, 0)
	want(e == 0 && n == 0, n, e)
	_, e = call(424, fd, uintptr(syscall.SIGKILL), 0, 0)
	want(e == 0, e)
	n, e = call(syscall.SYS_POLL, uintptr(unsafe.Pointer(&pfd)), 1, 5000)
	want(e == 0 && n == 1, n, e)
	c.Wait()
	_, e = call(424, fd, 0, 0, 0)
	want(e == syscall.ESRCH, e)
	syscall.Close(int(fd))

	// A directory of /proc does as well, but not one of a thread or another file.
	for path, no := range map[string]syscall.Errno{"/proc/self": 0, "/proc/self/task": syscall.EBADF, "/proc": syscall.EBADF, "/": syscall.EBADF} {
		dir, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
		if err == syscall.ENOENT && path != "/" {
			continue // the rig of the kernel's tests has no proc
		}
		must(err)
		_, e = call(424, uintptr(dir), 0, 0, 0)
		want(e == no, path, e)
		_, e = call(438, uintptr(dir), 0, 0) // pidfd_getfd
		want(e == syscall.EBADF, e)
		syscall.Close(dir)
	}
	fd, e = call(434, uintptr(os.Getpid()), 0)
	want(e == 0, e)
	_, e = call(438, fd, 0, 1)
	want(e == syscall.EINVAL, e)
	_, e = call(438, fd, 9999, 0)
	want(e == syscall.EBADF, e)
	var p [2]int
	must(syscall.Pipe(p[:]))
	w, e := call(438, fd, uintptr(p[1]), 0)
	want(e == 0 && int(w) != p[1], e)
	syscall.Write(int(w), []byte("x"))
	var b [1]byte
	n2, err := syscall.Read(p[0], b[:])
	want(n2 == 1 && b[0] == 'x', n2, err)
	flags, e := call(syscall.SYS_FCNTL, w, syscall.F_GETFD, 0)
	want(e == 0 && flags == syscall.FD_CLOEXEC, flags, e)
}

// processvm moves memory of a process to itself and reads a child's.
func processvm() {
	type iovec struct {
		base unsafe.Pointer
		n    uint64
	}
	const readv, writev = 310, 311
	src, dst := bytes.Repeat([]byte("0123456789abcdef"), 16<<10), make([]byte, 256<<10)
	local := []iovec{{unsafe.Pointer(&dst[0]), 100_000}, {unsafe.Pointer(&dst[100_000]), 156 << 10}}
	remote := []iovec{{unsafe.Pointer(&src[0]), 7}, {unsafe.Pointer(&src[7]), uint64(len(src)) - 7}}
	do := func(nr uintptr, pid int, l, r []iovec, flags uintptr) (int, syscall.Errno) {
		n, e := call(nr, uintptr(pid), uintptr(unsafe.Pointer(unsafe.SliceData(l))), uintptr(len(l)),
			uintptr(unsafe.Pointer(unsafe.SliceData(r))), uintptr(len(r)), flags)
		return int(n), e
	}
	pid := os.Getpid()
	total := 100_000 + 156<<10
	n, e := do(readv, pid, local, remote, 0)
	want(e == 0 && n == total && bytes.Equal(dst[:total], src[:total]), n, e)
	clear(src)
	n, e = do(writev, pid, local, remote, 0)
	want(e == 0 && n == total && bytes.Equal(dst[:total], src[:total]), n, e)
	_, e = do(readv, pid, local, remote, 1)
	want(e == syscall.EINVAL, e)
	_, e = do(readv, 0x3fffff, local, remote, 0)
	want(e == syscall.ESRCH, e)
	n, e = do(readv, 0x3fffff, nil, remote, 0)
	want(e == 0 && n == 0, n, e)
	hole, err := syscall.Mmap(-1, 0, 8192, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	must(err)
	must(syscall.Mprotect(hole[4096:], syscall.PROT_NONE))
	n, e = do(readv, pid, local, []iovec{{unsafe.Pointer(&hole[4096]), 10}}, 0)
	want(e == syscall.EFAULT, n, e)
	n, e = do(readv, pid, local, []iovec{{unsafe.Pointer(&hole[0]), 8192}}, 0)
	want(e == 0 && n == 4096, n, e)
}

func sigqueue() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	sig := uintptr(40)
	set := uint64(1) << (sig - 1)
	_, e := call(syscall.SYS_RT_SIGPROCMASK, 0, uintptr(unsafe.Pointer(&set)), 0, 8)
	want(e == 0, e)
	for i := range uint64(5) {
		var info [128]byte
		le := binary.LittleEndian
		le.PutUint32(info[8:], 0xffffffff) // SI_QUEUE
		le.PutUint32(info[16:], uint32(os.Getpid()))
		le.PutUint64(info[24:], 100+i)
		_, e := call(297, uintptr(os.Getpid()), uintptr(syscall.Gettid()), sig, uintptr(unsafe.Pointer(&info)))
		want(e == 0, e)
	}
	var pending uint64
	call(syscall.SYS_RT_SIGPENDING, uintptr(unsafe.Pointer(&pending)), 8)
	want(pending&set != 0, "not pending")
	for i := range uint64(5) {
		var info [128]byte
		ts := syscall.Timespec{Sec: 1}
		n, e := call(syscall.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&set)), uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&ts)), 8)
		want(e == 0 && n == sig, n, e)
		want(binary.LittleEndian.Uint64(info[24:]) == 100+i, "value of ", i)
	}
	ts := syscall.Timespec{Nsec: 1e6}
	_, e = call(syscall.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&set)), 0, uintptr(unsafe.Pointer(&ts)), 8)
	want(e == syscall.EAGAIN, e)
	call(syscall.SYS_RT_SIGPROCMASK, 1, uintptr(unsafe.Pointer(&set)), 0, 8)
}

func sigwait() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	set := uint64(1) << (41 - 1)
	call(syscall.SYS_RT_SIGPROCMASK, 0, uintptr(unsafe.Pointer(&set)), 0, 8)
	tid := syscall.Gettid()
	go func() {
		time.Sleep(50 * time.Millisecond)
		call(syscall.SYS_TGKILL, uintptr(os.Getpid()), uintptr(tid), 41)
	}()
	ts := syscall.Timespec{Sec: 5}
	for {
		n, e := call(syscall.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&set)), 0, uintptr(unsafe.Pointer(&ts)), 8)
		if e == syscall.EINTR {
			continue
		}
		want(e == 0 && n == 41, n, e)
		break
	}
	call(syscall.SYS_RT_SIGPROCMASK, 1, uintptr(unsafe.Pointer(&set)), 0, 8)
}

// leader runs a child whose first thread exits before the others.
func leader() {
	pid, _, e := syscall.RawSyscall(syscall.SYS_FORK, 0, 0, 0)
	want(e == 0, e)
	if pid == 0 {
		rawThreadThenExit()
	}
	var ws syscall.WaitStatus
	_, err := syscall.Wait4(int(pid), &ws, 0, nil)
	must(err)
	want(ws.ExitStatus() == 4, ws)
}

var threadStack [64 << 10]byte

// rawThreadThenExit makes a thread without the runtime's help: it sleeps, then
// ends the process; the first thread ends alone before.
func rawThreadThenExit()

func subreaper() {
	_, e := call(syscall.SYS_PRCTL, 36, 1)
	want(e == 0, e)
	var out bytes.Buffer
	c := self("child-orphan")
	c.Stdout = &out
	must(c.Start())
	must(c.Wait())
	var pid int
	fmt.Sscan(out.String(), &pid)
	var ws syscall.WaitStatus
	got, err := syscall.Wait4(pid, &ws, 0, nil)
	must(err, "orphan")
	want(got == pid && ws.ExitStatus() == 0, got, ws)
	call(syscall.SYS_PRCTL, 36, 0)
}

func pdeathsig() {
	call(syscall.SYS_PRCTL, 36, 1)
	r, w, err := os.Pipe()
	must(err)
	c := self("child-pdeath")
	c.Stdout = w
	must(c.Start())
	w.Close()
	must(c.Wait())
	var pid int
	fmt.Fscan(r, &pid)
	var ws syscall.WaitStatus
	_, err = syscall.Wait4(pid, &ws, 0, nil)
	must(err, "grandchild ", pid)
	want(ws.Signal() == syscall.SIGKILL, ws)
	call(syscall.SYS_PRCTL, 36, 0)
}

func pidns() {
	c := self("child-ns")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC}
	err := c.Run()
	var ee *exec.ExitError
	want(errors.As(err, &ee) && ee.ExitCode() == 6, err)
	// From outside, SIGKILL reaches the init of the namespace.
	c = self("child-sleep")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	must(c.Start())
	must(c.Process.Signal(syscall.SIGKILL))
	err = c.Wait()
	want(errors.As(err, &ee) && ee.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL, err)
}

func pgrp() {
	c := self("child-sleep")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must(c.Start())
	g, err := syscall.Getpgid(c.Process.Pid)
	must(err)
	want(g == c.Process.Pid, g)
	must(syscall.Kill(-g, syscall.SIGTERM))
	var ws syscall.WaitStatus
	got, err := syscall.Wait4(-g, &ws, 0, nil)
	must(err)
	want(got == c.Process.Pid && ws.Signal() == syscall.SIGTERM, ws)
	want(syscall.Kill(-g, 0) == syscall.ESRCH, "group lives")
	c = self("child-sleep")
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	must(c.Start())
	sid, e := call(syscall.SYS_GETSID, uintptr(c.Process.Pid))
	want(e == 0 && int(sid) == c.Process.Pid, sid, e)
	c.Process.Kill()
	c.Wait()
}

// restart reads from a pipe while signals with SA_RESTART come in.
func restart() {
	r, w, err := os.Pipe()
	must(err)
	rfd := int(r.Fd())
	c := make(chan os.Signal, 100)
	signal.Notify(c, syscall.SIGUSR2)
	tid := make(chan int)
	res := make(chan error)
	go func() {
		runtime.LockOSThread()
		tid <- syscall.Gettid()
		var b [1]byte
		n, err := syscall.Read(rfd, b[:])
		if n != 1 {
			err = fmt.Errorf("%d, %v", n, err)
		}
		res <- err
	}()
	id := <-tid
	for range 5 {
		time.Sleep(10 * time.Millisecond)
		call(syscall.SYS_TGKILL, uintptr(os.Getpid()), uintptr(id), uintptr(syscall.SIGUSR2))
		<-c
	}
	w.Write([]byte("x"))
	must(<-res)
	signal.Reset()
}

func futexTimeout() {
	var word uint32
	ts := syscall.Timespec{Nsec: 20e6}
	start := time.Now()
	_, e := call(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(&word)), 0|128, 0, uintptr(unsafe.Pointer(&ts)))
	want(e == syscall.ETIMEDOUT || e == syscall.EINTR, e)
	want(time.Since(start) >= 20*time.Millisecond, "early")
	_, e = call(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(&word)), 0|128, 1, 0)
	want(e == syscall.EAGAIN, e)
	var bad uint32
	_, e = call(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(&bad))+1, 0|128, 1, 0)
	want(e == syscall.EINVAL, e)
	// Shared between processes: a mapping that a fork shares.
	mem, err := syscall.Mmap(-1, 0, 4096, 3, syscall.MAP_SHARED|syscall.MAP_ANONYMOUS)
	must(err)
	w := (*uint32)(unsafe.Pointer(&mem[0]))
	pid, _, _ := syscall.RawSyscall(syscall.SYS_FORK, 0, 0, 0)
	if pid == 0 {
		ts := syscall.Timespec{Nsec: 30e6}
		syscall.RawSyscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
		atomic.StoreUint32(w, 1)
		syscall.RawSyscall(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(w)), 1, 1)
		syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
	}
	for atomic.LoadUint32(w) == 0 {
		_, e = call(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(w)), 0, 0, 0)
		want(e == 0 || e == syscall.EAGAIN || e == syscall.EINTR, e)
	}
	syscall.Wait4(int(pid), nil, 0, nil)
}

func posixTimer() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	set := uint64(1) << (42 - 1)
	call(syscall.SYS_RT_SIGPROCMASK, 0, uintptr(unsafe.Pointer(&set)), 0, 8)
	var ev [64]byte
	le := binary.LittleEndian
	le.PutUint64(ev[0:], 77)
	le.PutUint32(ev[8:], 42)
	le.PutUint32(ev[12:], 4) // SIGEV_THREAD_ID
	le.PutUint32(ev[16:], uint32(syscall.Gettid()))
	var id int32
	_, e := call(222, 1, uintptr(unsafe.Pointer(&ev)), uintptr(unsafe.Pointer(&id)))
	want(e == 0, e)
	spec := [4]int64{0, 5e6, 0, 5e6}
	_, e = call(223, uintptr(id), 0, uintptr(unsafe.Pointer(&spec)), 0)
	want(e == 0, e)
	ts := syscall.Timespec{Nsec: 50e6}
	for syscall.Nanosleep(&ts, &ts) == syscall.EINTR {
	}
	var info [128]byte
	n, e := call(syscall.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&set)), uintptr(unsafe.Pointer(&info)), 0, 8)
	want(e == 0 && n == 42, n, e)
	want(int32(le.Uint32(info[8:])) == -2 && le.Uint64(info[24:]) == 77, "code, value")
	want(le.Uint32(info[20:]) >= 3, "overrun ", le.Uint32(info[20:]))
	_, e = call(226, uintptr(id))
	want(e == 0, e)
	_, e = call(226, uintptr(id))
	want(e == syscall.EINVAL, e)
	call(syscall.SYS_RT_SIGPROCMASK, 1, uintptr(unsafe.Pointer(&set)), 0, 8)
}

func rlimits() {
	var l syscall.Rlimit
	must(syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l))
	l.Cur--
	must(syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l))
	var m syscall.Rlimit
	must(syscall.Getrlimit(syscall.RLIMIT_NOFILE, &m))
	want(m == l, m)
	l.Cur = l.Max + 1
	want(syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l) == syscall.EINVAL, "cur above max")
}

// badFrame makes a child return from a signal that never was.
func badFrame() {
	pid, _, _ := syscall.RawSyscall(syscall.SYS_FORK, 0, 0, 0)
	if pid == 0 {
		resetSegv()
		syscall.RawSyscall(syscall.SYS_RT_SIGRETURN, 0, 0, 0)
		syscall.RawSyscall(syscall.SYS_EXIT, 9, 0, 0)
	}
	var ws syscall.WaitStatus
	_, err := syscall.Wait4(int(pid), &ws, 0, nil)
	must(err)
	// Whatever the stack held: it ended by itself or was ended.
	want(ws.Exited() || ws.Signaled(), ws)
}

//go:nosplit
func resetSegv() {
	var act [4]uint64
	syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(syscall.SIGSEGV), uintptr(unsafe.Pointer(&act)), 0, 8, 0, 0)
}

func int80() {
	pid, _, _ := syscall.RawSyscall(syscall.SYS_FORK, 0, 0, 0)
	if pid == 0 {
		resetSegv()
		rawInt80()
		syscall.RawSyscall(syscall.SYS_EXIT, 9, 0, 0)
	}
	var ws syscall.WaitStatus
	_, err := syscall.Wait4(int(pid), &ws, 0, nil)
	must(err)
	want(ws.Signaled() && ws.Signal() == syscall.SIGSEGV, ws)
	_, e := call(0x40000000 | 39)
	want(e == syscall.ENOSYS, e)
}

func rawInt80()

func nocldwait() {
	signal.Ignore(syscall.SIGCHLD)
	pid, _, _ := syscall.RawSyscall(syscall.SYS_FORK, 0, 0, 0)
	if pid == 0 {
		syscall.RawSyscall(syscall.SYS_EXIT, 3, 0, 0)
	}
	_, err := syscall.Wait4(int(pid), nil, 0, nil)
	want(err == syscall.ECHILD, err)
	signal.Reset(syscall.SIGCHLD)
}

func stopWait() {
	c := self("child-stop")
	must(c.Start())
	var ws syscall.WaitStatus
	_, err := syscall.Wait4(c.Process.Pid, &ws, syscall.WUNTRACED, nil)
	must(err)
	want(ws.Stopped() && ws.StopSignal() == syscall.SIGSTOP, ws)
	must(syscall.Kill(c.Process.Pid, syscall.SIGCONT))
	_, err = syscall.Wait4(c.Process.Pid, &ws, syscall.WCONTINUED, nil)
	must(err)
	if ws.Continued() {
		_, err = syscall.Wait4(c.Process.Pid, &ws, 0, nil)
		must(err)
	}
	want(ws.ExitStatus() == 5, ws)
	c.Process.Release()
}

func setuid() {
	cmd := self("child-true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000, Groups: []uint32{5, 6}}}
	must(cmd.Run())
}

// gc allocates and collects with the scavenger and preemption signals at work.
func gc() {
	var keep [][]byte
	for i := range 200 {
		keep = append(keep, make([]byte, 256<<10))
		if len(keep) > 20 {
			keep = keep[10:]
		}
		if i%50 == 0 {
			runtime.GC()
		}
	}
	runtime.KeepAlive(keep)
}

// killThreads kills a process with busy and sleeping threads.
func killThreads() {
	c := self("threads", "gc", "threads", "gc", "threads", "gc")
	c.Stdout = nil
	must(c.Start())
	time.Sleep(30 * time.Millisecond)
	c.Process.Kill()
	c.Wait()
}

// hog takes memory until it is killed.
func hog() {
	for n := 0; ; n++ {
		m, err := syscall.Mmap(-1, 0, 4<<20, 3, syscall.MAP_PRIVATE|syscall.MAP_ANONYMOUS)
		must(err)
		for i := 0; i < len(m); i += 4096 {
			m[i] = 1
		}
	}
}

// spin runs threads that never make a system call.
func spin() {
	for range 4 {
		go func() {
			for {
			}
		}()
	}
	select {}
}

// forks makes processes until none can be had.
func forks() {
	n := 0
	for {
		pid, _, e := syscall.RawSyscall(syscall.SYS_FORK, 0, 0, 0)
		if e == 0 && pid == 0 {
			for {
				syscall.RawSyscall(syscall.SYS_PAUSE, 0, 0, 0)
			}
		}
		if e != 0 {
			want(e == syscall.EAGAIN, e)
			fmt.Println("forked", n > 5 && n < 100)
			return
		}
		n++
	}
}
