//go:build system

package system

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"runsc/test/rig"
)

// TestCheckpointClient checkpoints and restores by containerd's Go client, in ways that ctr has no command for; the
// program test/tools/containerd/checkpointer does and checks it all. It restores into containers without a
// configuration: the client's options are runc's.
func TestCheckpointClient(t *testing.T) {
	begin(t)
	t.Cleanup(removeUnpacked)
	events := watch(t)
	prefix := R.NewID()
	res := ok(t, R.Exec(120*time.Second, nil, "checkpointer", R.Socket(), R.Namespace, runtime, rig.Busybox, prefix, t.TempDir()))
	if res.Stdout != "all is well\n" {
		t.Error(res)
	}
	for _, name := range []string{"original", "restored", "paused"} {
		id := fmt.Sprintf("%s-%s", prefix, name)
		ev, err := events.Wait(id, "checkpointed", 5*time.Second)
		if err != nil {
			t.Error(err)
		} else if path, _ := ev.Body["checkpoint"].(string); !strings.HasPrefix(path, "/") {
			t.Errorf("the event of %s: %v", id, ev.Body)
		}
	}
}
