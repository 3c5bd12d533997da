//go:build system

package system

import (
	"testing"

	"runsc/test/rig"
)

// TestFileCalls runs programs that check the calls on files and mounts against what Linux does, on both
// runtimes.
func TestFileCalls(t *testing.T) {
	begin(t)
	for _, name := range []string{"mount", "mqueue", "xattr", "files"} {
		t.Run(name, func(t *testing.T) {
			c := rig.Container{Image: rig.Guest, Args: []string{"/guest/" + name}, Flags: []string{"--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_LINUX_IMMUTABLE", "--cap-add", "CAP_LEASE"}}
			if res := same(t, c); res.Stdout != "ok\n" {
				t.Errorf("%s", res)
			}
		})
	}
}
