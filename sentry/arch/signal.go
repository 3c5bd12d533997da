package arch

import "encoding/binary"

// SigSet is a set of signals; signal n is bit n-1, as in the kernel's sigset_t.
type SigSet uint64

// SigBit returns the set with the one signal sig, 1 to 64.
func SigBit(sig int32) SigSet { return 1 << uint(sig-1) }

// Has tells whether sig is in the set.
func (s SigSet) Has(sig int32) bool { return s&SigBit(sig) != 0 }

// SigAction is the kernel's struct sigaction of rt_sigaction(2).
type SigAction struct {
	Handler  uint64
	Flags    uint64
	Restorer uint64
	Mask     SigSet
}

// SigStack is stack_t of sigaltstack(2).
type SigStack struct {
	Sp    uint64
	Flags int32
	_     int32
	Size  uint64
}

// Contains tells whether sp lies on the stack, as Linux's on_sig_stack.
func (s *SigStack) Contains(sp uint64) bool {
	return sp > s.Sp && sp-s.Sp <= s.Size
}

// SigInfo is siginfo_t: three common fields and a union, whose members the
// methods below read and write (asm-generic/siginfo.h).
type SigInfo struct {
	Signo int32
	Errno int32
	Code  int32
	_     int32

	Fields [112]byte
}

func (s *SigInfo) get32(off int) uint32    { return binary.LittleEndian.Uint32(s.Fields[off-16:]) }
func (s *SigInfo) put32(off int, v uint32) { binary.LittleEndian.PutUint32(s.Fields[off-16:], v) }
func (s *SigInfo) get64(off int) uint64    { return binary.LittleEndian.Uint64(s.Fields[off-16:]) }
func (s *SigInfo) put64(off int, v uint64) { binary.LittleEndian.PutUint64(s.Fields[off-16:], v) }

// PID is si_pid of kill, sigqueue and SIGCHLD.
func (s *SigInfo) PID() int32 { return int32(s.get32(16)) }

// SetPID sets si_pid.
func (s *SigInfo) SetPID(pid int32) { s.put32(16, uint32(pid)) }

// UID is si_uid.
func (s *SigInfo) UID() uint32 { return s.get32(20) }

// SetUID sets si_uid.
func (s *SigInfo) SetUID(uid uint32) { s.put32(20, uid) }

// Value is si_value of sigqueue and timers.
func (s *SigInfo) Value() uint64 { return s.get64(24) }

// SetValue sets si_value.
func (s *SigInfo) SetValue(v uint64) { s.put64(24, v) }

// TimerID is si_timerid.
func (s *SigInfo) TimerID() int32 { return int32(s.get32(16)) }

// SetTimerID sets si_timerid.
func (s *SigInfo) SetTimerID(id int32) { s.put32(16, uint32(id)) }

// Overrun is si_overrun.
func (s *SigInfo) Overrun() int32 { return int32(s.get32(20)) }

// SetOverrun sets si_overrun.
func (s *SigInfo) SetOverrun(n int32) { s.put32(20, uint32(n)) }

// Status is si_status of SIGCHLD.
func (s *SigInfo) Status() int32 { return int32(s.get32(24)) }

// SetStatus sets si_status.
func (s *SigInfo) SetStatus(v int32) { s.put32(24, uint32(v)) }

// SetTimes sets si_utime and si_stime, in clock ticks.
func (s *SigInfo) SetTimes(utime, stime int64) {
	s.put64(32, uint64(utime))
	s.put64(40, uint64(stime))
}

// Times returns si_utime and si_stime.
func (s *SigInfo) Times() (utime, stime int64) { return int64(s.get64(32)), int64(s.get64(40)) }

// Addr is si_addr of a fault.
func (s *SigInfo) Addr() uint64 { return s.get64(16) }

// SetAddr sets si_addr.
func (s *SigInfo) SetAddr(addr uint64) { s.put64(16, addr) }

// Band and FD are those of SIGIO.
func (s *SigInfo) Band() (band int64, fd int32) { return int64(s.get64(16)), int32(s.get32(24)) }

// SetBand sets si_band and si_fd.
func (s *SigInfo) SetBand(band int64, fd int32) {
	s.put64(16, uint64(band))
	s.put32(24, uint32(fd))
}

// SetSyscall sets si_call_addr, si_syscall and si_arch of SIGSYS.
func (s *SigInfo) SetSyscall(addr uint64, nr int32, audit uint32) {
	s.put64(16, addr)
	s.put32(24, uint32(nr))
	s.put32(28, audit)
}
