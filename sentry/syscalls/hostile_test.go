package syscalls

import (
	"math/rand"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// hostileSkip are calls that end the guest or the test's own hold on it.
var hostileSkip = map[string]bool{
	"exit": true, "exit_group": true, "execve": true, "execveat": true, "fork": true, "vfork": true,
	"clone": true, "clone3": true, "munmap": true, "mremap": true, "mprotect": true, "mmap": true, "brk": true,
	"rt_sigreturn": true, "kill": true, "tkill": true, "tgkill": true, "rt_sigqueueinfo": true,
	"rt_tgsigqueueinfo": true, "madvise": true, "reboot": true, "setrlimit": true, "prlimit64": true,
	"pidfd_send_signal": true, "shmat": true, "shmdt": true,
}

// TestHostileArguments makes every call with arguments that no libc would
// pass. Nothing may panic or hang; what the calls answer does not matter. The
// process is being killed throughout, so that no call sleeps.
func TestHostileArguments(t *testing.T) {
	rounds := 500000
	if testing.Short() {
		rounds = 4000
	}
	s := newSandbox(t)
	end := make(chan bool)
	s.start(nil, func(g *guest) { <-end })
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	s.start(nil, func(g *guest) {
		rng := rand.New(rand.NewSource(seed))
		g.task.ThreadGroup().Kill()
		buf := g.put(make([]byte, 1<<16))
		paths := g.put([]byte("/a\x00/d/b\x00..\x00/\x00d\x00\x00"))
		pool := []uint64{
			0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 16, 20, 24, 63, 64, 127, 128, 255, 256, 512, 1024, 4095, 4096, 65536,
			1 << 20, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1<<47 - 4096, 1 << 47, 1 << 62, 1<<63 - 1, 1 << 63,
			^uint64(0), ^uint64(99), buf, buf + 1, buf + 8, buf + 65530, paths, paths + 3, paths + 8, paths + 11,
			paths + 13, paths + 15, 0x400000, uint64(unix.O_RDWR | unix.O_CREAT), uint64(unix.O_NONBLOCK | unix.O_CLOEXEC),
			g.arena + arenaSize - 4, g.arena + arenaSize,
		}
		for range rounds {
			c := &calls[rng.Intn(len(calls))]
			if hostileSkip[c.Name] {
				continue
			}
			var a [6]uint64
			for i := range a {
				a[i] = pool[rng.Intn(len(pool))]
				if rng.Intn(20) == 0 {
					a[i] += rng.Uint64()>>rng.Intn(64) - 4
				}
			}
			if rng.Intn(4) == 0 {
				p := make([]byte, 64)
				rng.Read(p[:rng.Intn(64)])
				_ = g.task.CopyOut(buf+uint64(rng.Intn(1000)), p)
			}
			started := time.Now()
			_, _ = g.tb.Dispatch(g.task, c.Nr, &a)
			if d := time.Since(started); d > 5*time.Second {
				g.Errorf("%s(%#x) took %v", c.Name, a, d)
			}
		}
	})
	s.waitFor(1, 30*time.Second)
	end <- true
	s.wait(1)
}
