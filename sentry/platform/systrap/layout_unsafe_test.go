package systrap

import (
	"os"
	"regexp"
	"strconv"
	"testing"
	"unsafe"
)

// TestLayout compares the structures with stub_amd64.h.
func TestLayout(t *testing.T) {
	src, err := os.ReadFile("stub_amd64.h")
	if err != nil {
		t.Skip(err)
	}
	defs := map[string]int64{}
	for _, m := range regexp.MustCompile(`(?m)^#define (\w+)\s+(\S+)$`).FindAllSubmatch(src, -1) {
		v, err := strconv.ParseInt(string(m[2]), 0, 64)
		if err != nil {
			t.Fatal(err)
		}
		defs[string(m[1])] = v
	}
	var s slotMem
	var c cmdPage
	var e cmdEntry
	var f sigFrame
	slot := func(o uintptr) int64 { return int64(o) - slotMemSize }
	result := func(o uintptr) int64 { return stubSlotsOff + slotSize + slot(o) }
	for name, v := range map[string]int64{
		"STUB_DATA": stubDataOff, "STUB_CODESIZE": stubCodeSize, "STUB_CMD": stubCmdOff,
		"STUB_SLOTS": stubSlotsOff, "STUB_SIZE": stubSize, "SLOT_SIZE": slotSize, "SLOT_MASK": slotSize - 1,
		"DATA_SA_HANDLER": dataHandler, "DATA_SA_DEFAULT": dataDefault, "DATA_CAPHEADER": dataCapHeader,
		"DATA_PROG_LEADER": dataProgLeader, "DATA_PROG_GUEST": dataProgGuest,
		"CMD_HEAD": int64(unsafe.Offsetof(c.head)), "CMD_SPIN": int64(unsafe.Offsetof(c.spin)),
		"CMD_ACKWAIT": int64(unsafe.Offsetof(c.ackWait)), "CMD_ACK": int64(unsafe.Offsetof(c.ack)),
		"CMD_RING": int64(unsafe.Offsetof(c.ring)), "RING_MASK": ringSize - 1,
		"ENT_OP": int64(unsafe.Offsetof(e.op)), "ENT_SEQ": int64(unsafe.Offsetof(e.seq)), "ENT_A0": int64(unsafe.Offsetof(e.args)),
		"OP_MAP": opMap, "OP_UNMAP": opUnmap, "OP_PROTECT": opProtect, "OP_THREAD": opThread, "OP_FORK": opFork,
		"OP_RESUME": opResume, "OP_EXIT": opExit, "OP_ACK": opAck,
		"S_STATE": slot(unsafe.Offsetof(s.state)), "S_SPIN": slot(unsafe.Offsetof(s.spin)),
		"S_FLAGS": slot(unsafe.Offsetof(s.flags)), "S_SET": slot(unsafe.Offsetof(s.set)),
		"S_FRAME": slot(unsafe.Offsetof(s.frame)), "S_FS": slot(unsafe.Offsetof(s.fs)), "S_GS": slot(unsafe.Offsetof(s.gs)),
		"S_TID": slot(unsafe.Offsetof(s.tid)), "S_SPINW": slot(unsafe.Offsetof(s.spinW)),
		"S_LEADER": slot(unsafe.Offsetof(s.leader)), "S_SS": slot(unsafe.Offsetof(s.ssSP)),
		"S_T0": slot(unsafe.Offsetof(s.t0)), "S_T1": slot(unsafe.Offsetof(s.t1)), "S_CPU": slot(unsafe.Offsetof(s.cpu)),
		"RESULT_ERR": result(unsafe.Offsetof(s.err)), "RESULT_PID": result(unsafe.Offsetof(s.pid)),
		"ST_DEAD": stDead, "ST_RUN": stRun, "ST_RUNW": stRunW, "ST_EVENT": stEvent, "ST_EVENTW": stEventW,
		"ST_CHAIN": stChain, "ST_CHAINW": stChainW, "ST_SLEEP": stSleep, "ST_YIELD": stYield, "ST_EXIT": stExit, "ST_SPILL": stSpill,
		"KIND_FRAME": kindFrame, "KIND_DIRECT": kindDirect, "KIND_KICKED": kindKicked, "DIRECT": directEntry,
		"FRAME_RBX": int64(unsafe.Offsetof(f.rbx)), "FRAME_RIP": int64(unsafe.Offsetof(f.rip)),
		"S_SELF": slot(unsafe.Offsetof(s.self)), "S_EFL": slot(unsafe.Offsetof(s.eflags)), "S_KICK": slot(unsafe.Offsetof(s.kick)),
		"S_KIND": slot(unsafe.Offsetof(s.kind)), "S_ERR": slot(unsafe.Offsetof(s.err)), "S_PID": slot(unsafe.Offsetof(s.pid)),
		"S_RAX": slot(unsafe.Offsetof(s.rax)), "S_RBX": slot(unsafe.Offsetof(s.rbx)), "S_RCX": slot(unsafe.Offsetof(s.rcx)),
		"S_RDX": slot(unsafe.Offsetof(s.rdx)), "S_RSI": slot(unsafe.Offsetof(s.rsi)), "S_RDI": slot(unsafe.Offsetof(s.rdi)),
		"S_RBP": slot(unsafe.Offsetof(s.rbp)), "S_RSP": slot(unsafe.Offsetof(s.rsp)), "S_R8": slot(unsafe.Offsetof(s.r8)),
		"S_R9": slot(unsafe.Offsetof(s.r9)), "S_R10": slot(unsafe.Offsetof(s.r10)), "S_R12": slot(unsafe.Offsetof(s.r12)),
		"S_R13": slot(unsafe.Offsetof(s.r13)), "S_R14": slot(unsafe.Offsetof(s.r14)), "S_R15": slot(unsafe.Offsetof(s.r15)),
		"FLAG_FSGSBASE": flagFSGSBase, "FLAG_RDTSCP": flagRDTSCP, "FLAG_DIRECT": flagDirect, "SET_FS": setFS, "SET_GS": setGS,
	} {
		if got, ok := defs[name]; !ok || got != v {
			t.Errorf("%s is %#x in assembler, %#x in Go", name, got, v)
		}
	}
	if unsafe.Sizeof(s) != slotMemSize || unsafe.Sizeof(c) != pageSize || unsafe.Sizeof(e) != 64 || unsafe.Sizeof(f) != sigFrameSize {
		t.Errorf("sizes: slot %d, page %d, entry %d, frame %d", unsafe.Sizeof(s), unsafe.Sizeof(c), unsafe.Sizeof(e), unsafe.Sizeof(f))
	}
}
