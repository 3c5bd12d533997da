//go:build system

package system

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"runsc/pkg/cpufeature"
	"runsc/test/rig"
)

// TestCPUFeatures hides features of the processor: from CPUID, however a guest comes to ask, from the auxiliary
// vector and from /proc/cpuinfo, and after a restore.
func TestCPUFeatures(t *testing.T) {
	begin(t)
	p := newPlace(t)
	mask := func(names string) {
		p.file(t, "runsc.toml", fmt.Sprintf("cpu-features-mask = [%s]\nrestore-allow = [%q]\n", names, p.dir))
	}
	mask(`"avx", "rdrand", "ht"`)
	if !cpufeature.Faulting() {
		if res := R.Run(rig.Container{Runtime: runtime, Flags: p.flags, Args: sh("true")}); res.Code == 0 || !strings.Contains(res.Stderr, "not possible on this host") {
			t.Errorf("a host that cannot do it: %s", res)
		}
		return
	}
	hidden := "avx 0 avx2 0 avx512f 0 rdrand 0 sse2 1 ht 0 hwcap 0\n"
	id := detached(t, rig.Container{Image: rig.Guest, Flags: p.flags, Args: []string{"/guest/cpuid", "wait"}})
	awaitOutput(t, id, "ready")
	want := ""
	for _, who := range []string{"main", "thread", "handler", "fork", "exec"} {
		want += who + ": " + hidden
	}
	want += "hlt: signal 11 code 1\nhlt: signal 11 code 128\narch_prctl: 1\nready\n"
	if got := R.Output(id); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	res := ok(t, R.Ctr("task", "exec", "--exec-id", "e", id, "grep", "-m1", "^flags", "/proc/cpuinfo"))
	flags := strings.Fields(res.Stdout)
	for _, name := range []string{"avx", "avx2", "avx512f", "rdrand", "fma", "ht"} {
		if slices.Contains(flags, name) {
			t.Errorf("/proc/cpuinfo has %s", name)
		}
	}
	if !slices.Contains(flags, "sse2") {
		t.Errorf("/proc/cpuinfo: %v", flags)
	}
	ok(t, R.Ctr("task", "checkpoint", "--image-path", p.img(1), id))
	if m := manifest(t, p.img(1)); !slices.Equal(m.CPUFeatures, flags[2:]) {
		t.Errorf("the manifest has %v, /proc/cpuinfo %v", m.CPUFeatures, flags)
	}
	R.Remove(id)

	// A host that hides what the guest has seen cannot take it.
	mask(`"avx", "rdrand", "ht", "aes"`)
	restored := func() rig.Result {
		c := p.restored(p.img(1))
		c.Image = rig.Guest
		return R.Run(c)
	}
	if slices.Contains(flags, "aes") {
		if res := restored(); res.Code == 0 || !strings.Contains(res.Stderr, `"aes"`) || strings.Count(res.Stderr, "\n") != 1 {
			t.Errorf("restored where aes is hidden: %s", res)
		}
	}
	mask(`"avx", "rdrand", "ht"`)
	p.letGo(t)
	if res := restored(); res.Code != 0 || res.Stdout != "later: "+hidden {
		t.Errorf("restored: %s", res)
	}
	// Without a mask it may go on, and sees what there is.
	p.file(t, "runsc.toml", fmt.Sprintf("restore-allow = [%q]\n", filepath.Clean(p.dir)))
	if res := restored(); res.Code != 0 || !strings.Contains(res.Stdout, "sse2 1") {
		t.Errorf("restored without a mask: %s", res)
	}
	for names, says := range map[string]string{`"sse2"`: "cannot be hidden", `"nosuch"`: "no processor feature"} {
		mask(names)
		if res := R.Run(rig.Container{Runtime: runtime, Flags: p.flags, Args: sh("true")}); res.Code == 0 || !strings.Contains(res.Stderr, says) {
			t.Errorf("%s: %s", names, res)
		}
	}
}
