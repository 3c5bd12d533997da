package imagetool

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"runsc/pkg/imagefmt"
)

// TestMutations damages an image of a released format at many places: whatever is changed in one of the files that have
// checksums, cut off or doubled, verify says so in one sentence, and inspect ends without a panic.
func TestMutations(t *testing.T) {
	golden := os.DirFS("../../test/golden/v1")
	dir := filepath.Join(t.TempDir(), "img")
	if err := os.CopyFS(dir, golden); err != nil {
		t.Fatal(err)
	}
	bad := func(t *testing.T, what string, at int) {
		t.Helper()
		code, out, errs := tool("verify", dir)
		if code != 1 || out != "" || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s at %d: %d %q %q", what, at, code, out, errs)
		}
		tool("inspect", dir)
	}
	for _, name := range imagefmt.StateFiles {
		path := filepath.Join(dir, name)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		put := func(b []byte) {
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		step := max(len(data)/60, 1)
		for at := 0; at < len(data); at += step {
			b := append([]byte(nil), data...)
			b[at] ^= 1 << (at % 8)
			put(b)
			bad(t, name+" changed", at)
			put(data[:at])
			bad(t, name+" cut off", at)
			put(append(append(append([]byte(nil), data[:at]...), data[at:min(at+step, len(data))]...), data[at:]...))
			bad(t, name+" doubled", at)
		}
		put(data)
	}
	if code, _, errs := tool("verify", dir); code != 0 {
		t.Errorf("the image itself: %s", errs)
	}
}
