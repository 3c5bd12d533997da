//go:build system

package system

import (
	"fmt"
	"testing"
	"time"

	"runsc/test/rig"
)

// TestCheckpointCalls counts the host's system calls of the stat family during a save of a container that has looked at
// many files: no file is asked for because it is cached.
func TestCheckpointCalls(t *testing.T) {
	begin(t)
	n := size(20_000, 100_000)
	dir := hostTmpfs(t, "size=1g,nr_inodes=200000")
	makeTree(t, dir, n)
	p := newPlace(t)
	id := detached(t, rig.Container{Flags: append(p.flags, "--mount", bind(dir, "/mnt", "rw")), Args: sh("cd /mnt/d0000; exec 3< file000 4>> file001; echo up; exec sleep 1000")})
	awaitOutput(t, id, "up")
	// -size asks for the attributes of each file.
	if got := inside(t, id, "find /mnt -type f -size -1 | wc -l", time.Minute); got != fmt.Sprintln(n) {
		t.Fatalf("find saw %q files, want %d", got, n)
	}
	calls := hostCalls(t, "%stat,%lstat,%fstat,statx,write", func() {
		ok(t, R.Ctr("task", "checkpoint", "--image-path", p.img(1), id))
	})
	sum := 0
	for name, n := range calls {
		if name != "write" {
			sum += n
		}
	}
	if calls["write"] == 0 {
		t.Errorf("the image's writes were not seen: %v", calls)
	}
	t.Logf("%d files walked: %v", n, calls)
	if sum >= 50 {
		t.Errorf("the save made %d calls of the stat family on the host, want fewer than 50: %v", sum, calls)
	}
	ok(t, image("verify", p.img(1)))
}
