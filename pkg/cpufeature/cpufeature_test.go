package cpufeature

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// hostFlags are the flags of this host's first processor.
func hostFlags(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "flags" {
			return strings.Fields(value)
		}
	}
	t.Fatal("no flags in /proc/cpuinfo")
	return nil
}

func TestTables(t *testing.T) {
	seen := map[string]bool{}
	for _, w := range words {
		used := uint32(0)
		for _, b := range w.bits {
			if seen[b.name] {
				t.Errorf("%s is listed twice", b.name)
			}
			if used>>b.n&1 != 0 {
				t.Errorf("%s has the bit of another", b.name)
			}
			seen[b.name] = true
			used |= 1 << b.n
		}
	}
	for name, list := range needs {
		for _, n := range append(list, name) {
			if !seen[n] {
				t.Errorf("%s is in needs and not in words", n)
			}
		}
	}
	for name := range baseline {
		if !seen[name] {
			t.Errorf("%s is in baseline and not in words", name)
		}
	}
}

// TestHost compares the table with what Linux made of this processor: a flag that it shows is in the bit that the
// table names. (Not the other way round: Linux hides what it does not use.)
func TestHost(t *testing.T) {
	flags := hostFlags(t)
	n := 0
	for _, w := range words {
		var r [4]uint32
		r[eax], r[ebx], r[ecx], r[edx] = cpuid(w.leaf, uint32(max(w.sub, 0)))
		for _, b := range w.bits {
			if slices.Contains(flags, b.name) {
				n++
				if r[w.reg]>>b.n&1 == 0 {
					t.Errorf("%s is a flag of this host, leaf %#x/%d lacks it", b.name, w.leaf, w.sub)
				}
			}
		}
	}
	if n < 20 {
		t.Errorf("only %d of this host's flags are known: %v", n, flags)
	}
}

func TestHidden(t *testing.T) {
	hidden := Hidden([]string{"avx2"})
	for _, name := range []string{"avx2", "avx512f", "avx512vl", "avx512_fp16", "avx_vnni"} {
		if !slices.Contains(hidden, name) {
			t.Errorf("%s stays without avx2", name)
		}
	}
	for _, name := range []string{"avx", "fma", "aes", "vaes"} {
		if slices.Contains(hidden, name) {
			t.Errorf("%s goes with avx2", name)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, tt := range []struct{ name, says string }{
		{"sse2", "every 64-bit program"},
		{"lm", "every 64-bit program"},
		{"nosuch", "no processor feature"},
		{"rep_good", "no processor feature"},
		{"", "no processor feature"},
	} {
		if err := Check([]string{"avx", tt.name}); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%q: %v", tt.name, err)
		}
	}
	if err := Check([]string{"avx512f", "rdrand"}); err != nil {
		t.Error(err)
	}
}

func TestMask(t *testing.T) {
	m, err := New([]string{"avx", "rdrand", "ht"})
	if err != nil {
		t.Fatal(err)
	}
	if c := m.CPUID(1, 0)[ecx]; c>>28&1 != 0 || c>>30&1 != 0 || c>>12&1 != 0 {
		t.Errorf("leaf 1: ecx %#x", c)
	}
	if b := m.CPUID(7, 0)[ebx]; b>>5&1 != 0 || b>>16&1 != 0 || b&1 != 0 {
		t.Errorf("leaf 7: ebx %#x", b)
	}
	_, _, want, _ := cpuid(1, 0)
	if c := m.CPUID(1, 0)[ecx]; c&1 != want&1 || c>>25&1 != want>>25&1 {
		t.Errorf("leaf 1 lost more: %#x of %#x", c, want)
	}
	// Beyond the last leaf Intel's processors answer as for it.
	last := m.CPUID(0, 0)[eax]
	if m.CPUID(last+5, 0) != m.CPUID(last, 0) && m.CPUID(last+5, 0) != [4]uint32{} {
		t.Errorf("beyond leaf %#x: %#x", last, m.CPUID(last+5, 0))
	}
	if got := m.Filter("fpu avx aes avx512f rdrand fsgsbase rep_good"); got != "fpu aes rep_good" {
		t.Errorf("flags %q", got)
	}
	if got := m.HWCap(1<<28 | 1<<25); got != 1<<25 {
		t.Errorf("AT_HWCAP %#x", got)
	}
	for i := range uint32(1000) {
		m.CPUID(4, i)
	}
	if len(m.cache) > maxCached {
		t.Errorf("%d answers are kept", len(m.cache))
	}
}

func TestLength(t *testing.T) {
	for _, tt := range []struct {
		code string
		want int
	}{
		{"\x0f\xa2\x90", 2},
		{"\x66\x0f\xa2", 3},
		{"\xf3\x48\x0f\xa2", 4},
		{"\x2e\x2e\x41\x0f\xa2", 5},
		{"\x48\x66\x0f\xa2", 4},
		{"\xf0\x0f\xa2", 0},
		{"\x0f", 0},
		{"", 0},
		{"\x0f\x0b", 0},
		{strings.Repeat("\x66", 14) + "\x0f\xa2", 0},
		{strings.Repeat("\x66", 13) + "\x0f\xa2", 15},
	} {
		if got := Length([]byte(tt.code)); got != tt.want {
			t.Errorf("% x: %d, want %d", tt.code, got, tt.want)
		}
	}
}
