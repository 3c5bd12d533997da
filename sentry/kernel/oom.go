package kernel

import (
	"fmt"

	"golang.org/x/sys/unix"

	"runsc/sentry/mem"
)

// oomPatience is how long a victim may take to die before another is chosen.
const oomPatience = 5_000_000_000

// oomGrace is how long after a kill no other victim is chosen: the memory of a
// dead process comes back a little after its exit.
const oomGrace = 50_000_000

// oomRetry is how long a task that found no memory sleeps before it tries again.
const oomRetry = 2_000_000

// onLimit is the account's OnLimit: the container's memory is used up. It
// kills the process that frees the most, unless one is dying already.
func (c *Container) onLimit(_ *mem.Account, need uint64) {
	victim := c.chooseVictim()
	if victim == nil {
		return
	}
	now := c.k.clock.Monotonic()
	if !victim.oomVictim.CompareAndSwap(0, now) {
		return
	}
	c.oomLast.Store(now)
	c.oomKills.Add(1)
	c.k.logf("info", fmt.Sprintf("container %s: out of memory (%d bytes used, %d more needed): killed process %d",
		c.ID(), c.Account().Total(), need, victim.ID(c.k.rootNS)))
	victim.Kill() // reaches it in a paused container too
}

// chooseVictim returns the process to kill, nil while an earlier victim dies
// or when nobody is left (oom_badness: resident pages, plus oom_score_adj in
// thousandths of the limit).
func (c *Container) chooseVictim() *ThreadGroup {
	limit := int64(c.Account().Limit())
	if limit == 0 {
		limit = int64(c.Account().Total())
	}
	now := c.k.clock.Monotonic()
	if last := c.oomLast.Load(); last != 0 && now-last < oomGrace {
		return nil
	}
	var victim *ThreadGroup
	best := int64(-1)
	for _, tg := range c.Processes() {
		if at := tg.oomVictim.Load(); at != 0 {
			if now-at < oomPatience {
				return nil
			}
			continue
		}
		adj := int64(tg.OOMScoreAdj())
		if adj == -1000 {
			continue
		}
		rss, ok := tg.anonRSS()
		if !ok {
			continue
		}
		if points := max(rss+adj*(limit/1000), 0); points > best {
			victim, best = tg, points
		}
	}
	return victim
}

// anonRSS returns the process's resident anonymous memory. It holds the
// space by Task.mu alone: dropping the last user here, with locks of the
// caller held, could wait for them.
func (tg *ThreadGroup) anonRSS() (int64, bool) {
	for _, t := range tg.Tasks() {
		t.mu.Lock()
		m := t.mm
		var n int64
		if m != nil {
			n = int64(m.Usage().RSSAnon)
		}
		t.mu.Unlock()
		if m != nil {
			return n, true
		}
	}
	return 0, false
}

// waitForMemory is what a task does whose page fault found no memory: it lets
// the victim die and tries again. A container in which nobody can be killed
// loses the task itself.
func (t *Task) waitForMemory() {
	now := t.Now()
	if t.oomSince == 0 || now-t.oomLast > oomPatience {
		t.oomSince = now
	}
	t.oomLast = now
	if now-t.oomSince > 2*oomPatience && t.tg.oomVictim.CompareAndSwap(0, now) {
		t.container.oomKills.Add(1)
		t.tg.Kill()
		return
	}
	t.waiter.Clear()
	_ = t.BlockKillable(t.waiter, now+oomRetry)
}

// oomAdjMax bounds /proc/PID/oom_score_adj both ways.
const oomAdjMax = 1000

// WriteOOMScoreAdj sets /proc/PID/oom_score_adj as t asks: EINVAL, EACCES for
// less than before without CAP_SYS_RESOURCE. Own to t.
func (tg *ThreadGroup) WriteOOMScoreAdj(t *Task, v int32) error {
	if v < -oomAdjMax || v > oomAdjMax {
		return unix.EINVAL
	}
	if v < tg.oomScoreAdjMin.Load() && !t.Cred().Has(unix.CAP_SYS_RESOURCE) {
		return unix.EACCES
	}
	tg.oomScoreAdj.Store(v)
	if t.Cred().Has(unix.CAP_SYS_RESOURCE) {
		tg.oomScoreAdjMin.Store(v)
	}
	return nil
}
