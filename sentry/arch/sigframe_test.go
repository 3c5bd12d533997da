package arch

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"runsc/pkg/abi/linux"
)

func testFrame(flags uint64) (*SigFrame, Regs) {
	r := Regs{Rax: 1, Rbx: 2, Rcx: 3, Rdx: 4, Rsi: 5, Rdi: 6, Rbp: 7, R8: 8, R15: 15, Rip: 0x401000, Rsp: 0x7ff0_0000_1238, Eflags: 0x246 | eflagsDF}
	f := &SigFrame{
		Info:   SigInfo{Signo: 10, Code: -1},
		Action: SigAction{Handler: 0x402000, Flags: flags | linux.SA_RESTORER, Restorer: 0x403000},
		Mask:   0x55, CR2: 0x1234,
	}
	return f, r
}

func TestSigFrame(t *testing.T) {
	f, r := testFrame(0)
	was := r
	buf, addr, err := f.Build(&r)
	if err != nil {
		t.Fatal(err)
	}
	get := func(off int) uint64 { return binary.LittleEndian.Uint64(buf[off:]) }
	if addr%16 != 8 {
		t.Errorf("frame at %#x: the ABI wants the stack as after a call", addr)
	}
	if end := addr + uint64(len(buf)); end > was.Rsp-redZone {
		t.Errorf("frame ends at %#x, in the red zone of %#x", end, was.Rsp)
	}
	if fp := get(frameContext + 184); fp%64 != 0 || fp < addr+SigFrameSize || fp+FXSaveSize > addr+uint64(len(buf)) {
		t.Errorf("fpstate at %#x", fp)
	}
	if get(0) != 0x403000 || r.Rip != 0x402000 || r.Rsp != addr || r.Rdi != 10 || r.Rsi != addr+frameInfo || r.Rdx != addr+frameFlags || r.Rax != 0 {
		t.Errorf("registers %+v", r)
	}
	if r.Eflags&eflagsDF != 0 {
		t.Error("direction flag in the handler")
	}
	s, err := ParseSigFrame(buf)
	if err != nil {
		t.Fatal(err)
	}
	n := Regs{FsBase: 9, Eflags: 0x202}
	s.Apply(&n)
	was.FsBase, was.OrigRax = 9, ^uint64(0)
	if n != was {
		t.Errorf("sigreturn gives %+v, want %+v", n, was)
	}
	if s.Mask != 0x55 {
		t.Errorf("mask %#x", s.Mask)
	}
}

func TestSigFrameStacks(t *testing.T) {
	alt := SigStack{Sp: 0x10000, Size: 0x4000}
	tests := []struct {
		name  string
		flags uint64
		alt   SigStack
		sp    uint64
		err   error
		onAlt bool
	}{
		{"alternate", linux.SA_ONSTACK, alt, 0x7ff0_0000_0000, nil, true},
		{"not asked for", 0, alt, 0x7ff0_0000_0000, nil, false},
		{"disabled", linux.SA_ONSTACK, SigStack{Flags: linux.SS_DISABLE, Sp: 0x10000, Size: 0x4000}, 0x7ff0_0000_0000, nil, false},
		{"on it already", linux.SA_ONSTACK, alt, 0x13000, nil, true},
		{"overflow", linux.SA_ONSTACK, alt, 0x10100, unix.EFAULT, false},
		{"too small", linux.SA_ONSTACK, SigStack{Sp: 0x10000, Size: 0x100}, 0x7ff0_0000_0000, unix.EFAULT, false},
		{"stack at 0", 0, SigStack{}, 64, unix.EFAULT, false},
		{"stack above the guest", 0, SigStack{}, 0xffff_8000_0000_0000, unix.EFAULT, false},
		{"wild alternate", linux.SA_ONSTACK, SigStack{Sp: ^uint64(0) - 100, Size: 1 << 20}, 0x7ff0_0000_0000, unix.EFAULT, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, r := testFrame(tt.flags)
			f.AltStack, r.Rsp = tt.alt, tt.sp
			buf, addr, err := f.Build(&r)
			if err != tt.err {
				t.Fatalf("error %v, want %v", err, tt.err)
			}
			if err == nil && tt.alt.Contains(addr) != tt.onAlt {
				t.Errorf("frame of %d bytes at %#x", len(buf), addr)
			}
		})
	}
	f, r := testFrame(0)
	f.Action.Flags = 0
	if _, _, err := f.Build(&r); err != unix.EFAULT {
		t.Error("no restorer: ", err)
	}
}

// TestSigReturnFlags: a forged frame sets no flag that user mode may not set.
func TestSigReturnFlags(t *testing.T) {
	b := make([]byte, SigFrameSize)
	for i := range b {
		b[i] = 0xff
	}
	s, err := ParseSigFrame(b)
	if err != nil {
		t.Fatal(err)
	}
	r := Regs{Eflags: 0x202, FsBase: 1, GsBase: 2}
	s.Apply(&r)
	if r.Eflags != 0x202|UserEflags || r.FsBase != 1 || r.GsBase != 2 {
		t.Errorf("%+v", r)
	}
	if _, err := ParseSigFrame(b[:100]); err != unix.EFAULT {
		t.Error(err)
	}
}

func TestFPFrameSize(t *testing.T) {
	fp := initialFP()
	if n := FPFrameSize(fp); n != FXSaveSize {
		t.Error(n)
	}
	binary.LittleEndian.PutUint32(fp[fpSWOffset:], fpMagic1)
	for size, want := range map[uint32]int{832: 832, 100: FXSaveSize, 1 << 30: FXSaveSize, 0xffffffff: FXSaveSize} {
		binary.LittleEndian.PutUint32(fp[fpSWOffset+4:], size)
		if n := FPFrameSize(fp); n != want {
			t.Errorf("size %d: %d, want %d", size, n, want)
		}
	}
}
