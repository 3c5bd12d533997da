//go:build system

package system

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"runsc/pkg/imagefmt"
	"runsc/test/rig"
)

var updateGolden = flag.Bool("golden", false, "make the golden image of the current format anew")

// TestGolden restores an image of each released format, test/golden/v*, in which test/golden/guest waits.
func TestGolden(t *testing.T) {
	begin(t)
	golden, err := filepath.Abs("../golden")
	if err != nil {
		t.Fatal(err)
	}
	p := newPlace(t)
	data, err := os.ReadFile(filepath.Join(golden, "guest"))
	if err == nil {
		err = os.WriteFile(filepath.Join(p.dir, "go/guest"), data, 0o755)
	}
	if err == nil {
		err = os.Chmod(filepath.Join(p.dir, "go/guest"), 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	if *updateGolden {
		makeGolden(t, p, filepath.Join(golden, "v1"))
	}
	p.letGo(t)
	images, _ := filepath.Glob(filepath.Join(golden, "v*"))
	if len(images) != imagefmt.Format {
		t.Errorf("%d images of formats 1 to %d", len(images), imagefmt.Format)
	}
	for i, dir := range images {
		if err := os.CopyFS(p.img(i), os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		ok(t, image("verify", p.img(i)))
		if res := R.Run(p.restored(p.img(i))); res.Code != 9 || res.Stdout != "restored\n" {
			t.Errorf("%s: %s", dir, res)
		}
	}
}

// makeGolden makes an image that any processor may restore: the guest uses nothing special.
func makeGolden(t *testing.T, p place, dir string) {
	t.Helper()
	id := detached(t, rig.Container{Flags: p.flags, Args: []string{"/go/guest"}})
	awaitOutput(t, id, "ready")
	os.RemoveAll(dir)
	ok(t, R.Ctr("task", "checkpoint", "--image-path", dir, id))
	m := manifest(t, dir)
	m.CPUFeatures = []string{}
	m.Containers[0].Spec = nil
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := imagefmt.WriteManifest(root, m); err != nil {
		t.Fatal(err)
	}
}
