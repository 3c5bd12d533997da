package imagetool

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"runsc/pkg/imagefmt"
	"runsc/sentry/image"
)

// makeImage writes a small image with two chunks of pages.
func makeImage(t *testing.T, dir string, change func(*imagefmt.Manifest)) {
	t.Helper()
	var files [3]*os.File
	for i, name := range imagefmt.StateFiles {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files[i] = f
	}
	w := image.NewWriter(files[0])
	if err := w.Put(9, 1, struct {
		ID image.ID `cbor:"1,keyasint"`
	}{7}); err != nil {
		t.Fatal(err)
	}
	size, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	pw, err := image.NewPageWriter(files[2], files[1], false)
	if err != nil {
		t.Fatal(err)
	}
	if err := pw.Write(10, bytes.Repeat([]byte("x"), 70*image.PageSize)); err != nil {
		t.Fatal(err)
	}
	pages, imgBytes, idxBytes, err := pw.Close()
	if err != nil {
		t.Fatal(err)
	}
	m := &imagefmt.Manifest{
		Magic: imagefmt.ManifestMagic, Format: imagefmt.Format, Arch: runtime.GOARCH, Created: time.Unix(1, 0), Pages: pages,
		Containers: []imagefmt.ManifestContainer{{ID: "c1", Name: "we\x1b[1mb", Root: true, Spec: json.RawMessage(`{"process":{"args":["sleep","9"],"cwd":"/"}}`)}},
		Files: map[string]imagefmt.ManifestFileInfo{
			imagefmt.KernelFile: {Size: size}, imagefmt.IndexFile: {Size: int64(idxBytes)}, imagefmt.PagesFile: {Size: int64(imgBytes)},
		},
	}
	if change != nil {
		change(m)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := imagefmt.WriteManifest(root, m); err != nil {
		t.Fatal(err)
	}
}

func tool(args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = run(args, &o, &e)
	return code, o.String(), e.String()
}

func TestInspect(t *testing.T) {
	dir := t.TempDir()
	makeImage(t, dir, nil)
	code, out, errs := tool("inspect", dir)
	if code != 0 || errs != "" || !strings.Contains(out, `["sleep" "9"]`) || strings.Contains(out, "\x1b") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	code, out, errs = tool("inspect", dir, "--json")
	var rep report
	if err := json.Unmarshal([]byte(out), &rep); err != nil || code != 0 || errs != "" || rep.Manifest.Containers[0].ID != "c1" {
		t.Errorf("%d %s %s %v", code, out, errs, err)
	}
	for _, args := range [][]string{{}, {"inspect"}, {"frob", dir}, {"inspect", dir, dir}, {"inspect", "--frob", dir}} {
		if code, _, errs := tool(args...); code != 2 || !strings.HasPrefix(errs, "usage:") {
			t.Errorf("%v: %d %s", args, code, errs)
		}
	}
}

func TestVerify(t *testing.T) {
	flip := func(name string, off int64) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			st, _ := f.Stat()
			if off < 0 {
				off += st.Size()
			}
			b := make([]byte, 1)
			f.ReadAt(b, off)
			b[0] ^= 0x40
			f.WriteAt(b, off)
		}
	}
	tests := []struct {
		name, want string
		damage     func(t *testing.T, dir string)
		change     func(*imagefmt.Manifest)
	}{
		{"good", "", nil, nil},
		{"header", "not part of a checkpoint image", flip("kernel.img", 0), nil},
		{"newer records", "format", flip("kernel.img", 9), nil},
		{"record", "record 0 is damaged", flip("kernel.img", 34), nil},
		{"last record", "damaged", flip("kernel.img", -1), nil},
		{"index", "pages.idx is damaged", flip("pages.idx", 20), nil},
		{"first page", "pages.img is damaged at offset 0", flip("pages.img", 5), nil},
		{"last page", "pages.img is damaged at offset", flip("pages.img", -1), nil},
		{"number of pages", "the manifest 71", nil, func(m *imagefmt.Manifest) { m.Pages = 71 }},
		{"sum", "kernel.img is damaged: its checksum", nil, func(m *imagefmt.Manifest) {
			m.Files[imagefmt.KernelFile] = imagefmt.ManifestFileInfo{Size: m.Files[imagefmt.KernelFile].Size, CRC32C: 1}
		}},
		{"newer", "format 9", nil, func(m *imagefmt.Manifest) { m.Format = 9 }},
		{"cut off", "cut off", func(t *testing.T, dir string) { os.Truncate(dir+"/pages.img", 4096) }, nil},
		{"incomplete", "manifest.json is missing", func(t *testing.T, dir string) { os.Remove(dir + "/manifest.json") }, nil},
		{"missing", "no such file", func(t *testing.T, dir string) { os.RemoveAll(dir) }, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			makeImage(t, dir, tt.change)
			if tt.damage != nil {
				tt.damage(t, dir)
			}
			code, out, errs := tool("verify", dir)
			if tt.want == "" {
				if code != 0 || !strings.Contains(out, "1 records, 70 pages in 2 chunks") {
					t.Errorf("%d %s %s", code, out, errs)
				}
				return
			}
			if code != 1 || out != "" || !strings.Contains(errs, tt.want) || strings.Count(errs, "\n") != 1 {
				t.Errorf("%d %q %q, want %q", code, out, errs, tt.want)
			}
		})
	}
}
