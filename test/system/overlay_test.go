//go:build system

package system

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"runsc/test/rig"
)

// overlay is a config file with a value of overlay2.
func (p place) overlay(t *testing.T, name, value string) []string {
	t.Helper()
	file := p.file(t, name, fmt.Sprintf("restore-allow = [%q]\noverlay2 = %q\n", p.dir, value))
	return append([]string{"--runtime-config-path", file}, p.flags[2:]...)
}

// TestUpperLayer writes to the root with its upper layer in memory and in files of the host.
func TestUpperLayer(t *testing.T) {
	begin(t)
	p := newPlace(t)
	disk := hostTmpfs(t, "size=48m")
	const script = "cat /proc/meminfo > /dev/null; dd if=/dev/urandom of=/data bs=1M count=24 2>/dev/null; sync; cp /data /copy; cmp /data /copy && echo same; cp /bin/busybox /busybox; /busybox echo runs; " +
		"dd if=/data of=/dev/null bs=4k 2>/dev/null; rm /copy; ls /; df -k / | tail -n 1 | wc -w"
	limited := func(flags []string) rig.Container {
		return rig.Container{Runtime: runtime, Flags: append(flags, "--memory-limit", "33554432"), Args: sh(script)}
	}
	for name, mode := range map[string]string{"self": "root:self", "dir": "root:dir=" + disk} {
		t.Run(name, func(t *testing.T) {
			if name == "dir" {
				// Two copies fill the disk but for a little.
				c := rig.Container{Runtime: runtime, Flags: p.overlay(t, name+".toml", mode), Args: sh("dd if=/dev/zero of=/a bs=1M count=100 2>&1 | grep -c 'No space'; rm /a; sleep 1; dd if=/dev/zero of=/b bs=1M count=30 2>/dev/null && echo fits")}
				if res := R.Run(c); res.Code != 0 || res.Stdout != "1\nfits\n" {
					t.Errorf("a full disk: %s", res)
				}
				if l, _ := os.ReadDir(disk); len(l) != 0 {
					t.Errorf("%s has %v", disk, l)
				}
				return
			}
			// Files are no memory of the container's: its limit is smaller than they are.
			if res := R.Run(limited(p.overlay(t, name+".toml", mode))); res.Code != 0 || !strings.HasPrefix(res.Stdout, "same\nruns\n") || strings.Contains(res.Stdout, ".runsc") {
				t.Errorf("%s", res)
			}
		})
	}
	for name, mode := range map[string]string{"memory": "root:memory,size=4m", "self": "root:self,size=4m"} {
		t.Run(name+" with a size", func(t *testing.T) {
			c := rig.Container{Runtime: runtime, Flags: p.overlay(t, "s"+name+".toml", mode), Args: sh("dd if=/dev/zero of=/a bs=1M count=8 2>&1 | grep -c 'No space'; stat -c %s /a; df -k / | tail -n 1 | awk '{print $2}'")}
			if res := R.Run(c); res.Stdout != "1\n4194304\n4096\n" {
				t.Errorf("%s", res)
			}
		})
	}
	t.Run("annotation", func(t *testing.T) {
		c := rig.Container{Runtime: runtime, Flags: append(p.overlay(t, "m.toml", "root:memory"), "--annotation", "dev.runsc.overlay2=root:memory,size=1m"), Args: sh("df -k / | tail -n 1 | awk '{print $2}'")}
		if res := R.Run(c); res.Stdout != "1024\n" {
			t.Errorf("%s", res)
		}
		c.Flags[len(c.Flags)-1] = "dev.runsc.overlay2=root:dir=/tmp"
		if res := R.Run(c); res.Code == 0 || !strings.Contains(res.Stderr, "in the configuration only") {
			t.Errorf("%s", res)
		}
	})
	t.Run("no directory", func(t *testing.T) {
		c := rig.Container{Runtime: runtime, Flags: p.overlay(t, "n.toml", "root:dir="+filepath.Join(disk, "none")), Args: []string{"true"}}
		if res := R.Run(c); res.Code == 0 || !strings.Contains(res.Stderr, "cannot make a file for the upper layer") {
			t.Errorf("%s", res)
		}
	})
}

// TestUpperLayerCheckpoint carries what is in the upper layer from one place to each other.
func TestUpperLayerCheckpoint(t *testing.T) {
	begin(t)
	disk := hostTmpfs(t, "size=64m")
	modes := map[string]string{"memory": "root:memory", "self": "root:self", "dir": "root:dir=" + disk}
	setup := prelude + "seq 400000 > /numbers; sha256sum /numbers > /sum; ln /numbers /hard; exec 3<>/gone; cat /numbers >&3; rm /gone; truncate -s 1M /hole; echo ready; hold; " +
		"sha256sum -c /sum; cmp /proc/self/fd/3 /hard && echo same; echo more >> /hard; tail -n 1 /numbers; stat -c '%s %b' /hole; rm /numbers /hard; exec 3>&-; seq 400000 > /again; tail -n 1 /again"
	const want = "/numbers: OK\nsame\nmore\n1048576 0\n400000\n"
	for _, way := range [][2]string{{"self", "self"}, {"dir", "memory"}, {"memory", "dir"}} {
		t.Run(way[0]+" to "+way[1], func(t *testing.T) {
			p := newPlace(t)
			id := detached(t, rig.Container{Flags: p.overlay(t, "a.toml", modes[way[0]]), Args: sh(setup)})
			awaitOutput(t, id, "ready")
			ok(t, R.Ctr("task", "checkpoint", "--image-path", p.img(1), id))
			R.Remove(id)
			p.letGo(t)
			r := p.restored(p.img(1))
			r.Flags = append(r.Flags[:2:2], p.overlay(t, "b.toml", modes[way[1]])...)
			if res := R.Run(r); res.Code != 0 || res.Stdout != want {
				t.Errorf("restored: %s\nwant %q", res, want)
			}
		})
	}
	t.Run("goes on", func(t *testing.T) {
		p := newPlace(t)
		id := detached(t, rig.Container{Flags: p.overlay(t, "a.toml", modes["self"]), Args: sh(setup)})
		awaitOutput(t, id, "ready")
		ok(t, R.Ctr("task", "checkpoint", "--image-path", p.img(1), id))
		p.letGo(t)
		await(t, "the original's output", 20*time.Second, func() bool { return strings.HasSuffix(R.Output(id), want) })
	})
}
