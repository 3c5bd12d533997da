package imagefmt

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func good() *Manifest {
	return &Manifest{
		Magic: ManifestMagic, Format: Format, Arch: runtime.GOARCH,
		Containers: []ManifestContainer{{ID: "a", Name: "web"}, {ID: "b", Root: true}},
		Files:      map[string]ManifestFileInfo{KernelFile: {Size: 1}, IndexFile: {Size: 1}, PagesFile: {Size: 1}},
	}
}

// fill makes a complete image.
func fill(t testing.TB, dir string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	for _, name := range StateFiles {
		if err := root.WriteFile(name, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := WriteManifest(root, good()); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	root := fill(t, dir)
	o, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	again, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if o.Identity() != again.Identity() || o.Identity() == "" {
		t.Error("one image has two identities")
	}
	link := filepath.Join(t.TempDir(), "l")
	os.Symlink(dir, link)
	if _, err := Open(link); err == nil {
		t.Error("opened through a link")
	}
	if err := RemoveIncomplete(root); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("a complete image: %v", err)
	}
	if err := WriteManifest(root, good()); err != nil {
		t.Errorf("a second manifest: %v", err)
	}
	if err := Remove(root); err != nil {
		t.Error(err)
	}
	if err := RemoveIncomplete(root); err != nil {
		t.Error(err)
	}
}

func TestFind(t *testing.T) {
	m := good()
	for what, want := range map[string]string{"": "b", "a": "a", "web": "a", "b": "b", "c": "-"} {
		got := "-"
		if c, err := m.Find(what); err == nil {
			got = c.ID
		}
		if got != want {
			t.Errorf("%q: %s, want %s", what, got, want)
		}
	}
	m.Containers = m.Containers[:1]
	if c, err := m.Find(""); err != nil || c.ID != "a" {
		t.Errorf("the only one: %v, %v", c, err)
	}
}

func TestCheckHost(t *testing.T) {
	m := good()
	have, err := hostFeatures()
	if err != nil {
		t.Fatal(err)
	}
	for f := range have {
		m.CPUFeatures = append(m.CPUFeatures, f)
	}
	if err := m.CheckHost(); err != nil {
		t.Error(err)
	}
	m.CPUFeatures = append(m.CPUFeatures, "frob")
	if err := m.CheckHost(); err == nil || !strings.Contains(err.Error(), `"frob"`) {
		t.Error(err)
	}
	m.Arch = "z80"
	if err := m.CheckHost(); err == nil || !strings.Contains(err.Error(), "z80") {
		t.Error(err)
	}
}

// tarOf makes an archive of an image's files.
func tarOf(t testing.TB, change func(h *tar.Header)) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	dir := t.TempDir()
	fill(t, dir)
	for _, name := range []string{ManifestFile, KernelFile, IndexFile, PagesFile} {
		body, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		h := &tar.Header{Name: "checkpoint/" + name, Mode: 0o600, Size: int64(len(body)), Typeflag: tar.TypeReg}
		if change != nil {
			change(h)
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(body); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	return b.Bytes()
}

func openTar(t testing.TB, body []byte) error {
	t.Helper()
	scratch := t.TempDir()
	path := filepath.Join(t.TempDir(), "a.tar")
	if err := os.WriteFile(path, body, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	o, err := OpenArchive(context.Background(), f, scratch)
	if err == nil {
		o.Close()
	}
	if left, _ := os.ReadDir(scratch); len(left) > 0 {
		t.Errorf("left %s", left[0].Name())
	}
	return err
}

func TestArchive(t *testing.T) {
	ok := tarOf(t, nil)
	if err := openTar(t, ok); err != nil {
		t.Error(err)
	}
	tests := []struct {
		name, want string
		body       []byte
	}{
		{"twice", "twice", tarOf(t, func(h *tar.Header) {
			if h.Name == "checkpoint/"+IndexFile {
				h.Name = "checkpoint/" + KernelFile
			}
		})},
		{"elsewhere", "is missing", tarOf(t, func(h *tar.Header) { h.Name = "x/" + h.Name })},
		{"up", "is missing", tarOf(t, func(h *tar.Header) { h.Name = "checkpoint/../../" + h.Name })},
		{"empty", "is missing", nil},
		{"text", "tar", bytes.Repeat([]byte("text "), 1000)},
		{"cut", "cut off", ok[:700]},
	}
	for _, tt := range tests {
		if err := openTar(t, tt.body); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// A sparse entry claims what is not there.
func TestSparseArchive(t *testing.T) {
	body := tarOf(t, nil)
	// GNU's old sparse format: type S, one data block, a real size of 8 TiB.
	i := bytes.Index(body, []byte("checkpoint/"+PagesFile))
	h := body[i : i+512]
	h[156] = 'S'
	copy(h[257:], "ustar  \x00")
	copy(h[386:], "00000000000\x0000000000001\x00")
	copy(h[483:], "77777777777\x00")
	sum := 0
	copy(h[148:156], "        ")
	for _, c := range h {
		sum += int(c)
	}
	copy(h[148:], []byte{byte('0' + sum>>15&7), byte('0' + sum>>12&7), byte('0' + sum>>9&7), byte('0' + sum>>6&7), byte('0' + sum>>3&7), byte('0' + sum&7), 0, ' '})
	err := openTar(t, body)
	if err == nil {
		t.Fatal("taken")
	}
	t.Log(err)
}

func FuzzManifest(f *testing.F) {
	dir := f.TempDir()
	fill(f, dir)
	body, err := os.ReadFile(filepath.Join(dir, ManifestFile))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Add([]byte(`{"magic":"runsc-checkpoint","format":1}`))
	f.Add([]byte(`{"magic":"runsc-checkpoint","format":2,"containers":7}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseManifest(b)
		if err != nil {
			return
		}
		if len(m.Containers) == 0 {
			t.Error("no container")
		}
		m.Find("x")
		m.CheckHost()
	})
}

func FuzzArchive(f *testing.F) {
	f.Add(tarOf(f, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		unpack(context.Background(), root, bytes.NewReader(b), int64(len(b)))
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			i, err := e.Info()
			if err != nil || !i.Mode().IsRegular() || i.Size() > int64(len(b)) {
				t.Errorf("%v, %v", i, err)
			}
		}
	})
}
