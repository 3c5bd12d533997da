package main

import (
	"bytes"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

const (
	shmget, shmat, shmctl, shmdt               = 29, 30, 31, 67
	semget, semopNr, semctl, semtimedop        = 64, 65, 66, 220
	msgget, msgsnd, msgrcv, msgctl             = 68, 69, 70, 71
	ipcCreat, ipcExcl, ipcNowait               = 0o1000, 0o2000, 0o4000
	ipcRmid, ipcSet, ipcStat                   = 0, 1, 2
	getpidCmd, getval, getall, getncnt         = 11, 12, 13, 14
	getzcnt, setval, setall                    = 15, 16, 17
	semUndo                                    = 0x1000
	shmDest                             uint32 = 0o1000
)

func mem(addr uintptr, n int) []byte {
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&addr))), n)
}

func ok(nr uintptr, a ...uintptr) uintptr {
	v, e := call(nr, a...)
	if e != 0 {
		_, file, line, _ := runtime.Caller(1)
		fatal(file, line, nr, a, e)
	}
	return v
}

func fails(want syscall.Errno, nr uintptr, a ...uintptr) {
	if v, e := call(nr, a...); e != want {
		_, file, line, _ := runtime.Caller(1)
		fatal(file, line, nr, a, v, e, "want", want)
	}
}

// sysvshm checks shared memory segments.
func sysvshm() {
	id := ok(shmget, 0, 10000, ipcCreat|0o600)
	type ds struct {
		key, uid, gid, cuid, cgid, mode uint32
		seq                             uint16
		_                               [22]byte
		size                            uint64
		times                           [3]int64
		cpid, lpid                      int32
		attached                        uint64
		_                               [2]uint64
	}
	stat := func() (d ds) {
		ok(shmctl, id, ipcStat, uintptr(unsafe.Pointer(&d)))
		return d
	}
	d := stat()
	want(unsafe.Sizeof(d) == 112 && d.size == 10000 && d.mode == 0o600 && d.attached == 0 && d.lpid == 0, d)
	a := ok(shmat, id, 0, 0)
	b := ok(shmat, id, 0, 0o10000) // SHM_RDONLY
	copy(mem(a, 12288)[9000:], "shared")
	want(string(mem(b, 12288)[9000:9006]) == "shared")
	want(stat().attached == 2, stat())
	_, e := call(syscall.SYS_MPROTECT, b, 4096, syscall.PROT_READ|syscall.PROT_WRITE)
	want(e == syscall.EACCES, e)
	fails(syscall.EINVAL, shmat, id, a, 0)
	fails(syscall.EINVAL, shmat, id, a+1, 0)
	fails(syscall.EINVAL, shmat, id, 0, 0o40000) // SHM_REMAP
	want(ok(shmat, id, a+5, 0o40000|0o20000) == a)
	want(stat().attached == 2, stat())
	fails(syscall.EINVAL, shmdt, a+4096)
	fails(syscall.EINVAL, shmdt, a+1)
	// What is left of it after a hole was made goes at once.
	ok(syscall.SYS_MUNMAP, a+4096, 4096)
	ok(shmctl, id, ipcRmid, 0)
	want(stat().mode == 0o600|shmDest, stat())
	c := ok(shmat, id, 0, 0)
	want(string(mem(c, 12288)[9000:9006]) == "shared")
	ok(shmdt, a)
	fails(syscall.EINVAL, shmdt, a)
	ok(shmdt, b)
	ok(shmdt, c)
	var x ds
	_, e = call(shmctl, id, ipcStat, uintptr(unsafe.Pointer(&x)))
	want(e == syscall.EINVAL || e == syscall.EIDRM, e)

	const key = 0x5afe0001
	id = ok(shmget, key, 4096, ipcCreat|ipcExcl|0o600)
	fails(syscall.EEXIST, shmget, key, 4096, ipcCreat|ipcExcl|0o600)
	fails(syscall.EINVAL, shmget, key, 8192, 0)
	want(ok(shmget, key, 0, 0) == id)
	ok(shmctl, id, ipcRmid, 0)
	fails(syscall.ENOENT, shmget, key, 4096, 0)
	fails(syscall.EINVAL, shmget, 0, 0, ipcCreat)
	fails(syscall.EINVAL, shmctl, ^uintptr(0), ipcStat, 0)
	fails(syscall.EINVAL, shmat, ^uintptr(0), 0, 0)
}

type sembuf struct {
	num     uint16
	op, flg int16
}

func semops(id uintptr, ops ...sembuf) syscall.Errno {
	_, e := again(semopNr, id, uintptr(unsafe.Pointer(&ops[0])), uintptr(len(ops)))
	return e
}

// again makes a call anew that a signal of Go's scheduler has ended.
func again(nr uintptr, a ...uintptr) (uintptr, syscall.Errno) {
	for {
		if v, e := call(nr, a...); e != syscall.EINTR {
			return v, e
		}
	}
}

// sysvsem checks semaphores.
func sysvsem() {
	id := ok(semget, 0, 3, ipcCreat|0o600)
	val := func(n uintptr) int { return int(ok(semctl, id, n, getval)) }
	want(semops(id, sembuf{0, 5, 0}, sembuf{1, 1, 0}) == 0)
	want(val(0) == 5 && val(1) == 1 && val(2) == 0)
	// All or nothing.
	want(semops(id, sembuf{0, -5, 0}, sembuf{2, -1, ipcNowait}) == syscall.EAGAIN)
	want(val(0) == 5)
	want(semops(id, sembuf{0, 0, ipcNowait}) == syscall.EAGAIN)
	want(semops(id, sembuf{2, 0, 0}) == 0)
	want(semops(id, sembuf{3, 1, 0}) == syscall.EFBIG)
	want(semops(id, sembuf{0, 32767, 0}) == syscall.ERANGE)
	fails(syscall.EINVAL, semopNr, id, 0, 0)
	fails(syscall.E2BIG, semopNr, id, 0, 501)
	ts := syscall.Timespec{Nsec: 20e6}
	op := sembuf{2, -1, 0}
	start := time.Now()
	fails(syscall.EAGAIN, semtimedop, id, uintptr(unsafe.Pointer(&op)), 1, uintptr(unsafe.Pointer(&ts)))
	want(time.Since(start) >= 20*time.Millisecond)
	want(int(ok(semctl, id, 0, getpidCmd)) == syscall.Getpid())

	// Somebody waits, is counted, and is woken.
	done := make(chan syscall.Errno)
	go func() { done <- semops(id, sembuf{2, -2, 0}) }()
	for ok(semctl, id, 2, getncnt) == 0 {
		time.Sleep(time.Millisecond)
	}
	want(semops(id, sembuf{2, 1, 0}) == 0)
	select {
	case <-done:
		fatal("one is not enough")
	case <-time.After(20 * time.Millisecond):
	}
	want(semops(id, sembuf{2, 1, 0}) == 0)
	want(<-done == 0 && val(2) == 0)
	go func() { done <- semops(id, sembuf{0, 0, 0}) }()
	for ok(semctl, id, 0, getzcnt) == 0 {
		time.Sleep(time.Millisecond)
	}
	ok(semctl, id, 0, setval, 0)
	want(<-done == 0)

	vals := [3]uint16{7, 8, 9}
	ok(semctl, id, 0, setall, uintptr(unsafe.Pointer(&vals)))
	vals = [3]uint16{}
	ok(semctl, id, 0, getall, uintptr(unsafe.Pointer(&vals)))
	want(vals == [3]uint16{7, 8, 9}, vals)
	fails(syscall.ERANGE, semctl, id, 0, setval, 32768)
	fails(syscall.EINVAL, semctl, id, 3, getval)

	// A child's adjustments are undone by its end.
	c := self("child-semundo")
	c.Env = append(c.Environ(), "SEM="+strconv.Itoa(int(id)))
	must(c.Run())
	want(val(0) == 7 && val(1) == 9, val(0), val(1))

	go func() { done <- semops(id, sembuf{0, -100, 0}) }()
	for ok(semctl, id, 0, getncnt) == 0 {
		time.Sleep(time.Millisecond)
	}
	ok(semctl, id, 0, ipcRmid)
	e := <-done
	want(e == syscall.EIDRM, e)
	want(semops(id, sembuf{0, 1, 0}) == syscall.EINVAL)
	fails(syscall.EINVAL, semget, 0, 0, ipcCreat)
	fails(syscall.EINVAL, semget, 0, 32001, ipcCreat)
}

// childSemundo takes three with SEM_UNDO and gives one for good.
func childSemundo(id int) {
	want(semops(uintptr(id), sembuf{0, -3, semUndo}, sembuf{1, 1, 0}) == 0)
	want(ok(semctl, uintptr(id), 0, getval) == 4)
}

// sysvmsg checks message queues.
func sysvmsg() {
	id := ok(msgget, 0, ipcCreat|0o600)
	type msg struct {
		typ  int64
		data [16]byte
	}
	send := func(typ int64, s string) {
		m := msg{typ: typ}
		copy(m.data[:], s)
		ok(msgsnd, id, uintptr(unsafe.Pointer(&m)), uintptr(len(s)), 0)
	}
	receive := func(typ int64, flags uintptr) (int64, string, syscall.Errno) {
		var m msg
		n, e := call(msgrcv, id, uintptr(unsafe.Pointer(&m)), 16, uintptr(typ), flags|ipcNowait)
		if e != 0 {
			return 0, "", e
		}
		return m.typ, string(m.data[:n]), 0
	}
	expect := func(typ int64, flags uintptr, wantType int64, text string) {
		t, s, e := receive(typ, flags)
		want(e == 0 && t == wantType && s == text, typ, t, s, e)
	}
	send(3, "three")
	send(1, "one")
	send(2, "two")
	send(1, "uno")
	expect(1, 0, 1, "one")
	expect(-2, 0, 1, "uno")
	expect(3, 0o20000, 2, "two") // MSG_EXCEPT
	expect(0, 0, 3, "three")
	_, _, e := receive(0, 0)
	want(e == syscall.ENOMSG, e)
	send(5, "0123456789")
	var m msg
	fails(syscall.E2BIG, msgrcv, id, uintptr(unsafe.Pointer(&m)), 4, 0, 0)
	want(ok(msgrcv, id, uintptr(unsafe.Pointer(&m)), 4, 0, 0o10000) == 4 && bytes.HasPrefix(m.data[:], []byte("0123\x00")))
	m.typ = 0
	fails(syscall.EINVAL, msgsnd, id, uintptr(unsafe.Pointer(&m)), 1, 0)
	m.typ = 1
	fails(syscall.EINVAL, msgsnd, id, uintptr(unsafe.Pointer(&m)), 8193, 0)
	fails(syscall.EFAULT, msgsnd, id, 8, 1, 0)

	// A queue is full at 16 KiB; a sender waits for room, a receiver for messages.
	big := make([]byte, 8+8192)
	big[0] = 1
	ok(msgsnd, id, uintptr(unsafe.Pointer(&big[0])), 8192, 0)
	ok(msgsnd, id, uintptr(unsafe.Pointer(&big[0])), 8192, 0)
	fails(syscall.EAGAIN, msgsnd, id, uintptr(unsafe.Pointer(&big[0])), 1, ipcNowait)
	done := make(chan syscall.Errno)
	go func() {
		_, e := again(msgsnd, id, uintptr(unsafe.Pointer(&big[0])), 1, 0)
		done <- e
	}()
	time.Sleep(10 * time.Millisecond)
	in := make([]byte, 8+8192)
	ok(msgrcv, id, uintptr(unsafe.Pointer(&in[0])), 8192, 0, 0)
	want(<-done == 0)
	ok(msgrcv, id, uintptr(unsafe.Pointer(&in[0])), 8192, 0, 0)
	want(ok(msgrcv, id, uintptr(unsafe.Pointer(&in[0])), 8192, 0, 0) == 1)
	go func() {
		var m msg
		_, e := again(msgrcv, id, uintptr(unsafe.Pointer(&m)), 16, 9, 0)
		want(e == 0 && m.typ == 9)
		_, e = again(msgrcv, id, uintptr(unsafe.Pointer(&m)), 16, 9, 0)
		done <- e
	}()
	time.Sleep(10 * time.Millisecond)
	send(8, "not this")
	send(9, "this")
	for {
		var ds [120]byte
		ok(msgctl, id, ipcStat, uintptr(unsafe.Pointer(&ds)))
		if n := *(*uint64)(unsafe.Pointer(&ds[80])); n == 1 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	time.Sleep(10 * time.Millisecond)
	ok(msgctl, id, ipcRmid, 0)
	e = <-done
	want(e == syscall.EIDRM, e)
	_, _, e = receive(0, 0)
	want(e == syscall.EINVAL || e == syscall.EIDRM, e)
}
