package proc

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// TestGarbage writes what nobody would to everything that can be written.
func TestGarbage(t *testing.T) {
	s := newSandbox(t, 2, "")
	var walk func(dir string)
	walk = func(dir string) {
		for _, e := range s.list(s.init, dir) {
			name := dir + "/" + e.Name
			if e.Type == unix.DT_DIR && e.Name != "." && e.Name != ".." {
				walk(name)
			}
			if e.Type != unix.DT_REG || e.Name == "mem" {
				continue
			}
			f, err := s.open(s.init, name, unix.O_RDWR)
			if err != nil {
				if f, err = s.open(s.init, name, unix.O_WRONLY); err != nil {
					continue
				}
			}
			for _, data := range [][]byte{nil, {0}, {'-'}, {0xff}, []byte("99999999999999999999"), bytes.Repeat([]byte{'7'}, 64<<10), bytes.Repeat([]byte{0}, 64<<10)} {
				for _, off := range []int64{0, 1, 1 << 40, 1<<63 - 1<<20} {
					buf := mem.KernelBuf(data)
					if n, err := f.WriteAt(s.init, &buf, off); n < 0 || n > len(data) {
						t.Errorf("%s: %d, %v", name, n, err)
					}
					b := make([]byte, 8)
					buf = mem.KernelBuf(b)
					_, _ = f.ReadAt(s.init, &buf, off)
				}
			}
			f.DecRef()
		}
	}
	walk("/proc")
	vfs.DropCaches()
	if n := s.fs.Live(); n != 1 {
		t.Errorf("%d nodes left", n)
	}
}

// TestLikeHost compares names, modes and the keys of lines with those of the
// kernel that runs the test, as far as both have them.
func TestLikeHost(t *testing.T) {
	s := newSandbox(t, 2, "")
	keys := func(text string) map[string]bool {
		m := map[string]bool{}
		for _, l := range strings.Split(text, "\n") {
			if k, _, ok := strings.Cut(l, ":"); ok {
				m[strings.TrimSpace(k)] = true
			}
		}
		return m
	}
	for _, name := range []string{"status", "io", "limits", "smaps_rollup"} {
		host, err := os.ReadFile("/proc/self/" + name)
		if err != nil {
			continue
		}
		theirs, ours := keys(string(host)), keys(s.read(s.init, "/proc/self/"+name))
		for k := range ours {
			if !theirs[k] && len(theirs) > 0 && !strings.Contains(k, "-") && k != "KSM" && k != "Kthread" {
				t.Logf("%s: %q is not on this host", name, k)
			}
		}
		if name == "io" && len(ours) != len(theirs) {
			t.Errorf("io has %d keys, the host %d", len(ours), len(theirs))
		}
	}
	if host, err := os.ReadFile("/proc/self/stat"); err == nil {
		if a, b := len(strings.Fields(string(host))), len(strings.Fields(s.read(s.init, "/proc/self/stat"))); a != b {
			t.Errorf("stat has %d fields, the host %d", b, a)
		}
	}
	for _, e := range s.list(s.init, "/proc/self") {
		st, err := os.Lstat("/proc/self/" + e.Name)
		if err != nil || e.Name == "." || e.Name == ".." {
			continue
		}
		g, err := vfs.StatAt(s.init, vfs.At{FS: s.init.FS(), Name: "/proc/self/" + e.Name, Flags: vfs.NoFollow}, unix.STATX_BASIC_STATS)
		if err != nil {
			t.Error(err)
			continue
		}
		if uint32(st.Mode().Perm()) != g.Mode&0o777 {
			t.Errorf("mode of %s is %o, on the host %o", e.Name, g.Mode&0o777, st.Mode().Perm())
		}
	}
}
