package seccompbpf

import (
	"encoding/binary"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

func assemble(ins ...instruction) []byte {
	var b []byte
	for _, in := range ins {
		b = binary.LittleEndian.AppendUint16(b, in.code)
		b = append(b, in.jt, in.jf)
		b = binary.LittleEndian.AppendUint32(b, in.k)
	}
	return b
}

func TestProgram(t *testing.T) {
	// Deny getpid with EPERM when its first argument's low word is 7.
	p, err := Parse(assemble(
		instruction{unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, 0, 0, 0},
		instruction{unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, 0, 3, unix.SYS_GETPID},
		instruction{unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, 0, 0, 16},
		instruction{unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, 0, 1, 7},
		instruction{unix.BPF_RET | unix.BPF_K, 0, 0, unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		instruction{unix.BPF_RET | unix.BPF_K, 0, 0, unix.SECCOMP_RET_ALLOW},
	))
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		d    Data
		want uint32
	}{
		{"other call", Data{Nr: unix.SYS_READ, Args: [6]uint64{7}}, unix.SECCOMP_RET_ALLOW},
		{"other argument", Data{Nr: unix.SYS_GETPID, Args: [6]uint64{8}}, unix.SECCOMP_RET_ALLOW},
		{"denied", Data{Nr: unix.SYS_GETPID, Args: [6]uint64{7 | 5<<32}}, unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := p.Run(&tt.d); got != tt.want {
				t.Errorf("got %#x, want %#x", got, tt.want)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	ret := instruction{unix.BPF_RET | unix.BPF_K, 0, 0, 0}
	tests := []struct {
		name string
		raw  []byte
	}{
		{"empty", nil},
		{"cut off", assemble(ret)[:5]},
		{"no return", assemble(instruction{unix.BPF_LD | unix.BPF_IMM, 0, 0, 1})},
		{"jump out", assemble(instruction{unix.BPF_JMP | unix.BPF_JA, 0, 0, 1}, ret)},
		{"endless jump", assemble(instruction{unix.BPF_JMP | unix.BPF_JA, 0, 0, 0xffffffff}, ret)},
		{"branch out", assemble(instruction{unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, 1, 0, 0}, ret)},
		{"load beyond the data", assemble(instruction{unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, 0, 0, 64}, ret)},
		{"unaligned load", assemble(instruction{unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, 0, 0, 2}, ret)},
		{"packet load", assemble(instruction{unix.BPF_LD | unix.BPF_W | unix.BPF_IND, 0, 0, 0}, ret)},
		{"scratch out of range", assemble(instruction{unix.BPF_ST, 0, 0, 16}, ret)},
		{"division by zero", assemble(instruction{unix.BPF_ALU | unix.BPF_DIV | unix.BPF_K, 0, 0, 0}, ret)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := Parse(tt.raw); err != unix.EINVAL {
				t.Errorf("got %v, want EINVAL", err)
			}
		})
	}
}

func FuzzProgram(f *testing.F) {
	f.Add(assemble(instruction{unix.BPF_RET | unix.BPF_A, 0, 0, 0}))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if p, err := Parse(raw); err == nil {
			p.Run(&Data{Nr: 1, Args: [6]uint64{1, 2, 3}})
		}
	})
}

func TestProfile(t *testing.T) {
	errno := uint(unix.ENOSYS)
	p, err := NewProfile(&specs.LinuxSeccomp{
		DefaultAction: specs.ActErrno,
		Syscalls: []specs.LinuxSyscall{
			{Names: []string{"read", "no_such_call"}, Action: specs.ActAllow},
			{Names: []string{"clone3"}, Action: specs.ActErrno, ErrnoRet: &errno},
			{Names: []string{"personality"}, Action: specs.ActAllow, Args: []specs.LinuxSeccompArg{{Index: 0, Value: 8, Op: specs.OpEqualTo}}},
			{Names: []string{"personality"}, Action: specs.ActAllow, Args: []specs.LinuxSeccompArg{{Index: 0, Value: 0xf0, ValueTwo: 0x20, Op: specs.OpMaskedEqual}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	eperm := unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	tests := []struct {
		name string
		d    Data
		want uint32
	}{
		{"allowed", Data{Nr: unix.SYS_READ}, unix.SECCOMP_RET_ALLOW},
		{"default", Data{Nr: unix.SYS_WRITE}, eperm},
		{"own errno", Data{Nr: unix.SYS_CLONE3}, unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		{"argument equal", Data{Nr: unix.SYS_PERSONALITY, Args: [6]uint64{8}}, unix.SECCOMP_RET_ALLOW},
		{"argument masked", Data{Nr: unix.SYS_PERSONALITY, Args: [6]uint64{0x2f}}, unix.SECCOMP_RET_ALLOW},
		{"argument not", Data{Nr: unix.SYS_PERSONALITY, Args: [6]uint64{9}}, eperm},
		{"beyond the table", Data{Nr: 100000}, eperm},
		{"negative", Data{Nr: -1}, eperm},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := p.Run(&tt.d); got != tt.want {
				t.Errorf("got %#x, want %#x", got, tt.want)
			}
		})
	}
	if _, err := NewProfile(&specs.LinuxSeccomp{DefaultAction: specs.ActNotify}); err == nil {
		t.Error("a profile with SCMP_ACT_NOTIFY is accepted")
	}
}

func TestStrictest(t *testing.T) {
	allow, _ := Parse(assemble(instruction{unix.BPF_RET | unix.BPF_K, 0, 0, unix.SECCOMP_RET_ALLOW}))
	errno, _ := Parse(assemble(instruction{unix.BPF_RET | unix.BPF_K, 0, 0, unix.SECCOMP_RET_ERRNO | 5}))
	kill, _ := Parse(assemble(instruction{unix.BPF_RET | unix.BPF_K, 0, 0, unix.SECCOMP_RET_KILL_PROCESS}))
	if got := Strictest([]Filter{allow, errno, allow}, &Data{}); got != unix.SECCOMP_RET_ERRNO|5 {
		t.Errorf("errno loses: %#x", got)
	}
	if got := Strictest([]Filter{kill, errno}, &Data{}); got != unix.SECCOMP_RET_KILL_PROCESS {
		t.Errorf("kill loses: %#x", got)
	}
}
