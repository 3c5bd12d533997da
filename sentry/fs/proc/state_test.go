package proc

import (
	"bytes"
	"testing"

	"runsc/sentry/image"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// saveFS returns the records of a file system.
func saveFS(t *testing.T, fs vfs.Filesystem) ([]byte, image.Ref) {
	t.Helper()
	var b bytes.Buffer
	w := image.NewWriter(&b)
	e := &vfs.SaveEnv{Saver: image.NewSaver(w), Frames: &mem.FrameSet{}, Caller: vfs.KernelCaller()}
	ref, err := e.Save(fs)
	if err == nil {
		_, err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), ref
}

func TestSettingsAreSaved(t *testing.T) {
	s := newSandbox(t, 1, "hidepid=2")
	boot := s.read(s.init, "/proc/sys/kernel/random/boot_id")
	if err := s.write(s.init, "/proc/sys/vm/overcommit_kbytes", "1000"); err != nil {
		t.Fatal(err)
	}
	idle, _ := saveFS(t, s.fs)
	s.sys.Sysctls(s.c).set("vm/swappiness", "11")
	b, ref := saveFS(t, s.fs)
	if len(idle) >= len(b) {
		t.Error("the record of an untouched file system is no smaller")
	}
	n := newSandbox(t, 1, "")
	restore := func(b []byte) error {
		r, err := image.NewReader(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		recs, err := image.LoadRecords(r, vfs.KnownState)
		if err != nil {
			t.Fatal(err)
		}
		e := &vfs.RestoreEnv{Restorer: recs, Caller: vfs.KernelCaller(),
			NewFS: func(_, source, options string) (vfs.Filesystem, error) { return n.sys.New(n.c, source, options) }}
		defer e.Abort()
		fs, err := e.RestoreFilesystem(ref)
		if err == nil && fs.Options() != "hidepid=invisible" {
			t.Errorf("options %q", fs.Options())
		}
		return err
	}
	if err := restore(b); err != nil {
		t.Fatal(err)
	}
	if v := n.sys.Sysctls(n.c).Get("vm/swappiness"); v != "11" {
		t.Errorf("restored value %q", v)
	}
	if v := n.read(n.init, "/proc/sys/kernel/random/boot_id"); v != boot {
		t.Errorf("restored boot id %q, want %q", v, boot)
	}
	if p := n.c.Account().Policy(); p.OvercommitKbytes.Load() != 1000 || p.OvercommitRatio.Load() != 50 && p.OvercommitRatio.Load() != 0 {
		t.Error("restored overcommit")
	}
	for name, v := range map[string]string{"vm/swappiness": "many", "vm/nonsense": "1", "kernel/hostname": "x"} {
		s.sys.Sysctls(s.c).values = map[string]string{name: v}
		b, _ := saveFS(t, s.fs)
		if err := restore(b); err == nil {
			t.Errorf("%s = %s was taken", name, v)
		}
	}
}
