//go:build system

package system

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"runsc/test/rig"
)

// placements are the values of file-access-mode.
var placements = []string{"direct", "remote"}

// placed is a config file for one placement of the file backend.
func (p place) placed(t *testing.T, mode string, more ...string) []string {
	t.Helper()
	file := p.file(t, mode+".toml", fmt.Sprintf("restore-allow = [%q]\nfile-access-mode = %q\n%s\n", p.dir, mode, strings.Join(more, "\n")))
	return append([]string{"--runtime-config-path", file}, p.flags[2:]...)
}

// TestHostFiles checks the calls on files in a bind mount: on Linux, and with the file backend in both
// placements.
func TestHostFiles(t *testing.T) {
	begin(t)
	run := func(t *testing.T, runtime string, flags func(p place) []string) {
		p := newPlace(t)
		c := rig.Container{Runtime: runtime, Image: rig.Guest, Flags: flags(p), Args: []string{"/guest/hostfiles", "/go"}, Timeout: time.Minute}
		if res := R.Run(c); res.Code != 0 || res.Stdout != "ok\n" {
			t.Errorf("%s", res)
		}
	}
	t.Run("runc", func(t *testing.T) { run(t, rig.Runc, func(p place) []string { return p.flags[2:] }) })
	for _, mode := range placements {
		t.Run(mode, func(t *testing.T) { run(t, runtime, func(p place) []string { return p.placed(t, mode) }) })
	}
	t.Run("root on the host", func(t *testing.T) {
		for _, mode := range placements {
			p := newPlace(t)
			c := rig.Container{Runtime: runtime, Image: rig.Guest, Flags: p.placed(t, mode, `overlay2 = "none"`), Args: []string{"/guest/hostfiles", "/home"}, Timeout: time.Minute}
			if res := R.Run(c); res.Code != 0 {
				t.Errorf("%s: %s", mode, res)
			}
		}
	})
}

// TestPlacementCheckpoint carries open host files from one placement to the other, with a watch for
// changes outside.
func TestPlacementCheckpoint(t *testing.T) {
	begin(t)
	setup := prelude + "mkdir -p /go/d/e; echo 'one\ntwo' > /go/d/e/f; exec 3</go/d/e/f 4>>/go/d/e/f 5<>/go/gone; read a <&3; echo kept >&5; rm /go/gone; cd /go/d; " +
		"/guest/watchdir /go/d >> /go/events & echo ready; hold; read b <&3; echo $b; echo three >&4; tail -n 1 e/f; cat /proc/self/fd/5; " +
		"until grep -q after /go/events; do sleep 0.05; done; kill $!; cat /go/events"
	const want = "two\nthree\nkept\nbefore\nafter\n"
	for i, mode := range placements {
		other := placements[1-i]
		t.Run(mode+" to "+other, func(t *testing.T) {
			p := newPlace(t)
			id := detached(t, rig.Container{Image: rig.Guest, Flags: p.placed(t, mode), Args: sh(setup)})
			awaitOutput(t, id, "ready")
			await(t, "the watch", 20*time.Second, func() bool {
				os.Remove(filepath.Join(p.dir, "go/d/before"))
				p.file(t, "go/d/before", "")
				return strings.Contains(p.output("events"), "before")
			})
			ok(t, R.Ctr("task", "checkpoint", "--image-path", p.img(1), id))
			R.Remove(id)
			// The watch saw one file, however often it took.
			p.file(t, "go/events", "before\n")
			p.letGo(t)
			r := p.restored(p.img(1))
			r.Image, r.Flags = rig.Guest, append(r.Flags[:2:2], p.placed(t, other)...)
			var end atomic.Bool
			var wg sync.WaitGroup
			wg.Go(func() {
				for !end.Load() && !strings.Contains(p.output("events"), "after") {
					os.Remove(filepath.Join(p.dir, "go/d/after"))
					os.WriteFile(filepath.Join(p.dir, "go/d/after"), nil, 0o644)
					time.Sleep(100 * time.Millisecond)
				}
			})
			res := R.Run(r)
			end.Store(true)
			wg.Wait()
			got := strings.Split(res.Stdout, "\n")
			if res.Code != 0 || len(got) < 5 || strings.Join(got[:5], "\n")+"\n" != want {
				t.Errorf("restored: %s\nwant %q", res, want)
			}
		})
	}
}

// TestEscape has a guest and the host rename directories and swap links at once, while guests look for
// what lies outside of the mount.
func TestEscape(t *testing.T) {
	begin(t)
	for _, mode := range placements {
		t.Run(mode, func(t *testing.T) {
			p := newPlace(t)
			p.file(t, "outside", "OUTSIDE")
			inside := func(name string) string { return filepath.Join(p.dir, "go", name) }
			id := detached(t, rig.Container{Image: rig.Guest, Flags: p.placed(t, mode), Args: []string{"/guest/escape", "/go", "2"}})
			awaitOutput(t, id, "racing")
			for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); {
				_ = syscall.Mkdir(inside("h"), 0o755)
				_ = syscall.Symlink(p.dir, inside("hl"))
				_ = unix.Renameat2(unix.AT_FDCWD, inside("h"), unix.AT_FDCWD, inside("d"), unix.RENAME_EXCHANGE)
				_ = unix.Renameat2(unix.AT_FDCWD, inside("hl"), unix.AT_FDCWD, inside("d"), unix.RENAME_EXCHANGE)
				_ = syscall.Rename(inside("a/b"), inside("x/b"))
				_ = syscall.Rename(inside("x/b"), inside("a/b"))
			}
			await(t, "the end of the race", time.Minute, func() bool { return strings.Contains(R.Output(id), "ok\n") })
			// Nobody has read the file: its time of access is as it was made.
			var st unix.Stat_t
			if err := unix.Stat(filepath.Join(p.dir, "outside"), &st); err != nil || st.Atim.Nano() > st.Mtim.Nano() {
				t.Errorf("the file outside was read: %v", err)
			}
		})
	}
}

// TestHostSockets has guests and the host meet at unix sockets and fifos in a bind mount, where the
// configuration lets them.
func TestHostSockets(t *testing.T) {
	begin(t)
	for _, mode := range placements {
		t.Run(mode, func(t *testing.T) {
			p := newPlace(t)
			all := p.placed(t, mode, `host-uds = "all"`, `host-fifo = "open"`)
			none := append([]string{"--runtime-config-path", p.file(t, "none.toml", fmt.Sprintf("file-access-mode = %q\n", mode))}, p.flags[2:]...)
			inside := func(name string) string { return filepath.Join(p.dir, "go", name) }

			// The host serves.
			l, err := net.Listen("unix", inside("s"))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			var wg sync.WaitGroup
			wg.Go(func() {
				c, err := l.Accept()
				if err != nil {
					return
				}
				got, _ := io.ReadAll(c)
				fmt.Fprintf(c, "host got %s", got)
				c.Close()
			})
			client := rig.Container{Runtime: runtime, Image: rig.Guest, Flags: none, Args: []string{"/guest/unixpeer", "connect", "/go/s"}}
			if res := R.Run(client); res.Code != 1 || !strings.Contains(res.Stderr, "refused") {
				t.Errorf("a socket of the host without host-uds: %s", res)
			}
			client.Flags = all
			if res := R.Run(client); res.Code != 0 || res.Stdout != "host got ping\n" {
				t.Errorf("guest to host: %s", res)
			}
			l.Close()
			wg.Wait()

			// The guest serves.
			id := detached(t, rig.Container{Image: rig.Guest, Flags: all, Args: []string{"/guest/unixpeer", "serve", "/go/g"}})
			awaitOutput(t, id, "ready")
			c, err := net.Dial("unix", inside("g"))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(c, "from outside")
			if got, err := io.ReadAll(c); string(got) != "pong" || err != nil {
				t.Errorf("host to guest: %q, %v", got, err)
			}
			c.Close()
			awaitOutput(t, id, "from outside")

			// Fifos, both ways.
			if err := syscall.Mkfifo(inside("in"), 0o666); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Mkfifo(inside("out"), 0o666); err != nil {
				t.Fatal(err)
			}
			id = detached(t, rig.Container{Image: rig.Guest, Flags: all, Args: sh("echo up; read a < /go/in; echo $a; echo answer > /go/out; echo end")})
			awaitOutput(t, id, "up")
			if err := os.WriteFile(inside("in"), []byte("question\n"), 0); err != nil {
				t.Fatal(err)
			}
			awaitOutput(t, id, "question")
			if b, err := os.ReadFile(inside("out")); string(b) != "answer\n" || err != nil {
				t.Errorf("fifo to the host: %q, %v", b, err)
			}
			awaitOutput(t, id, "end")
		})
	}
}
