package kernel

import "sync/atomic"

// ioCounters count what a task's calls read and wrote (struct
// task_io_accounting). The task alone adds.
type ioCounters struct {
	rchar, wchar atomic.Int64 `save:"rec"` // bytes
	syscr, syscw atomic.Int64 `save:"rec"` // calls
}

func (c *ioCounters) load() IOUsage {
	return IOUsage{c.rchar.Load(), c.wchar.Load(), c.syscr.Load(), c.syscw.Load()}
}

// IOUsage has the counters of /proc/PID/io.
type IOUsage struct {
	ReadBytes, WrittenBytes int64 `save:"rec"`
	ReadCalls, WriteCalls   int64 `save:"rec"`
}

func (u *IOUsage) add(o IOUsage) {
	u.ReadBytes += o.ReadBytes
	u.WrittenBytes += o.WrittenBytes
	u.ReadCalls += o.ReadCalls
	u.WriteCalls += o.WriteCalls
}

func (u IOUsage) record() []int64 {
	if u == (IOUsage{}) {
		return nil
	}
	return []int64{u.ReadBytes, u.WrittenBytes, u.ReadCalls, u.WriteCalls}
}

func restoredIO(rec []int64) (u IOUsage) {
	if len(rec) == 4 {
		u = IOUsage{rec[0], rec[1], rec[2], rec[3]}
	}
	return u
}

// CountRead counts a call that read n bytes, or failed. Own.
func (t *Task) CountRead(n int) {
	c := &t.acct.io
	c.syscr.Add(1)
	if n > 0 {
		c.rchar.Add(int64(n))
	}
}

// CountWrite counts a call that wrote n bytes, or failed. Own.
func (t *Task) CountWrite(n int) {
	c := &t.acct.io
	c.syscw.Add(1)
	if n > 0 {
		c.wchar.Add(int64(n))
	}
}

// IO returns what the task read and wrote.
func (t *Task) IO() IOUsage { return t.acct.io.load() }

// IO returns what the process read and wrote, with its threads that ended and
// the children that it waited for (do_io_accounting).
func (tg *ThreadGroup) IO() IOUsage {
	tg.k.mu.Lock()
	defer tg.k.mu.Unlock()
	u := tg.useLocked().io
	u.add(tg.childTimes.io)
	return u
}

// Switches returns how often the task slept, and how often it was
// interrupted.
func (t *Task) Switches() (voluntary, involuntary int64) {
	return t.acct.nvcsw.Load(), t.acct.nivcsw.Load()
}

// Faults returns the task's page faults without and with I/O.
func (t *Task) Faults() (minor, major int64) {
	return t.acct.minflt.Load(), t.acct.majflt.Load()
}

// ChildFaults returns the page faults of waited-for children.
func (tg *ThreadGroup) ChildFaults() (minor, major int64) {
	tg.k.mu.Lock()
	defer tg.k.mu.Unlock()
	return tg.childTimes.minflt, tg.childTimes.majflt
}
