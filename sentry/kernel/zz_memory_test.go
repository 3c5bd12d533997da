package kernel_test

import (
	"os"
	"testing"
)

func TestZZMemory(t *testing.T) {
	b, err := os.ReadFile("/tmp/memory/memguest")
	if err != nil {
		t.Skip(err)
	}
	r := newRig(t, 0, nil)
	r.write("/bin/mem", b, 0o755)
	out, code := r.run("/bin/mem", "64")
	t.Log(out, code)
}
