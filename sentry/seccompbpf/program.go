package seccompbpf

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Data is struct seccomp_data: what a filter decides on.
type Data struct {
	Nr   int32
	Arch uint32
	IP   uint64
	Args [6]uint64
}

// load returns the 32-bit word at an aligned offset below dataSize.
func (d *Data) load(off uint32) uint32 {
	switch off {
	case 0:
		return uint32(d.Nr)
	case 4:
		return d.Arch
	case 8:
		return uint32(d.IP)
	case 12:
		return uint32(d.IP >> 32)
	}
	v := d.Args[(off-16)/8]
	if off&4 != 0 {
		v >>= 32
	}
	return uint32(v)
}

const dataSize = 64

// Filter decides on system calls. The result is a SECCOMP_RET_* value with
// its data.
type Filter interface {
	Run(d *Data) uint32
}

// instruction is struct sock_filter.
type instruction struct {
	code   uint16
	jt, jf uint8
	k      uint32
}

// InstructionSize is the size of struct sock_filter in guest memory.
const InstructionSize = 8

// MaxInstructions is BPF_MAXINSNS.
const MaxInstructions = 4096

// Program is a checked classic BPF program.
type Program struct {
	code []instruction
	raw  []byte
}

// scratchWords is BPF_MEMWORDS.
const scratchWords = 16

// Parse checks a program given as an array of struct sock_filter. EINVAL for
// one that Linux's bpf_check_classic or seccomp_check_filter would refuse.
func Parse(raw []byte) (*Program, error) {
	n := len(raw) / InstructionSize
	if n == 0 || n > MaxInstructions || len(raw)%InstructionSize != 0 {
		return nil, unix.EINVAL
	}
	p := &Program{code: make([]instruction, n), raw: raw}
	for i := range p.code {
		b := raw[i*InstructionSize:]
		p.code[i] = instruction{binary.LittleEndian.Uint16(b), b[2], b[3], binary.LittleEndian.Uint32(b[4:])}
	}
	for i := range p.code {
		if !p.valid(i) {
			return nil, unix.EINVAL
		}
	}
	if last := p.code[n-1].code; last&7 != unix.BPF_RET {
		return nil, unix.EINVAL
	}
	return p, nil
}

// Raw returns the program as it was given.
func (p *Program) Raw() []byte { return p.raw }

// valid checks instruction i. Jumps go forward only, so that every program
// ends.
func (p *Program) valid(i int) bool {
	in, left := p.code[i], uint64(len(p.code)-i-1)
	switch in.code {
	case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
		return in.k < dataSize && in.k&3 == 0
	case unix.BPF_LD | unix.BPF_W | unix.BPF_LEN, unix.BPF_LDX | unix.BPF_W | unix.BPF_LEN,
		unix.BPF_LD | unix.BPF_IMM, unix.BPF_LDX | unix.BPF_IMM,
		unix.BPF_MISC | unix.BPF_TAX, unix.BPF_MISC | unix.BPF_TXA,
		unix.BPF_RET | unix.BPF_K, unix.BPF_RET | unix.BPF_A:
		return true
	case unix.BPF_LD | unix.BPF_MEM, unix.BPF_LDX | unix.BPF_MEM, unix.BPF_ST, unix.BPF_STX:
		return in.k < scratchWords
	case unix.BPF_JMP | unix.BPF_JA:
		return uint64(in.k) < left
	case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_X,
		unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, unix.BPF_JMP | unix.BPF_JGE | unix.BPF_X,
		unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K, unix.BPF_JMP | unix.BPF_JGT | unix.BPF_X,
		unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, unix.BPF_JMP | unix.BPF_JSET | unix.BPF_X:
		return uint64(in.jt) < left && uint64(in.jf) < left
	}
	if in.code&7 != unix.BPF_ALU {
		return false
	}
	switch op, bySource := in.code&0xf0, in.code&unix.BPF_X != 0; op {
	case unix.BPF_ADD, unix.BPF_SUB, unix.BPF_MUL, unix.BPF_AND, unix.BPF_OR, unix.BPF_XOR:
		return in.code&^0xf8 == unix.BPF_ALU
	case unix.BPF_NEG:
		return !bySource
	case unix.BPF_DIV:
		return bySource || in.k != 0
	case unix.BPF_LSH, unix.BPF_RSH:
		return bySource || in.k < 32
	}
	return false
}

// Run implements Filter.
func (p *Program) Run(d *Data) uint32 {
	var a, x uint32
	var scratch [scratchWords]uint32
	for pc := 0; pc < len(p.code); pc++ {
		in := p.code[pc]
		switch in.code & 7 {
		case unix.BPF_LD:
			switch in.code & 0xe0 {
			case unix.BPF_ABS:
				a = d.load(in.k)
			case unix.BPF_LEN:
				a = dataSize
			case unix.BPF_IMM:
				a = in.k
			default:
				a = scratch[in.k]
			}
		case unix.BPF_LDX:
			switch in.code & 0xe0 {
			case unix.BPF_LEN:
				x = dataSize
			case unix.BPF_IMM:
				x = in.k
			default:
				x = scratch[in.k]
			}
		case unix.BPF_ST:
			scratch[in.k] = a
		case unix.BPF_STX:
			scratch[in.k] = x
		case unix.BPF_JMP:
			pc += p.jump(in, a, x)
		case unix.BPF_RET:
			if in.code&unix.BPF_A != 0 {
				return a
			}
			return in.k
		case unix.BPF_MISC:
			if in.code&0xf8 == unix.BPF_TAX {
				x = a
			} else {
				a = x
			}
		case unix.BPF_ALU:
			operand := in.k
			if in.code&unix.BPF_X != 0 {
				operand = x
			}
			var ok bool
			if a, ok = alu(in.code&0xf0, a, operand); !ok {
				return unix.SECCOMP_RET_KILL_THREAD // division by zero returns 0
			}
		}
	}
	return unix.SECCOMP_RET_KILL_PROCESS
}

// jump returns how many instructions to skip.
func (p *Program) jump(in instruction, a, x uint32) int {
	operand := in.k
	if in.code&unix.BPF_X != 0 {
		operand = x
	}
	var yes bool
	switch in.code & 0xf0 {
	case unix.BPF_JA:
		return int(in.k)
	case unix.BPF_JEQ:
		yes = a == operand
	case unix.BPF_JGT:
		yes = a > operand
	case unix.BPF_JGE:
		yes = a >= operand
	case unix.BPF_JSET:
		yes = a&operand != 0
	}
	if yes {
		return int(in.jt)
	}
	return int(in.jf)
}

func alu(op uint16, a, v uint32) (uint32, bool) {
	switch op {
	case unix.BPF_ADD:
		return a + v, true
	case unix.BPF_SUB:
		return a - v, true
	case unix.BPF_MUL:
		return a * v, true
	case unix.BPF_DIV:
		if v == 0 {
			return 0, false
		}
		return a / v, true
	case unix.BPF_AND:
		return a & v, true
	case unix.BPF_OR:
		return a | v, true
	case unix.BPF_XOR:
		return a ^ v, true
	case unix.BPF_LSH:
		return a << (v & 31), true
	case unix.BPF_RSH:
		return a >> (v & 31), true
	}
	return -a, true // BPF_NEG
}

// Strictest returns the result of all filters together: the one with the
// highest precedence, as seccomp_run_filters chooses it.
func Strictest(filters []Filter, d *Data) uint32 {
	result := uint32(unix.SECCOMP_RET_ALLOW)
	for i := len(filters) - 1; i >= 0; i-- {
		if r := filters[i].Run(d); int32(r&unix.SECCOMP_RET_ACTION_FULL) < int32(result&unix.SECCOMP_RET_ACTION_FULL) {
			result = r
		}
	}
	return result
}
