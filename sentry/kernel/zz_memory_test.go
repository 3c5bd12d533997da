package kernel_test

import (
	"os"
	"testing"
)

func TestZZMemory(t *testing.T) {
	b, err := os.ReadFile("/tmp/memory/bench")
	if err != nil {
		t.Skip(err)
	}
	r := newRig(t, 0, nil)
	r.write("/bin/bench", b, 0o755)
	r.patience = 60e9
	out, code := r.run("/bin/bench", "fork+exec+wait", "fork+wait")
	t.Log(out, code)
}
