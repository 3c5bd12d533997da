package loader

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"runsc/sentry/arch/vdso"
	"runsc/sentry/image"
	"runsc/sentry/mem"
	"runsc/sentry/mm"
	"runsc/sentry/platform"
	"runsc/sentry/platform/systrap"
)

// checkpointed writes r's memory, by a snapshot while the program could run
// on if live is set, and puts in its place what was restored of the image, in
// a memfile of its own.
func (r *hostRun) checkpointed(live bool) {
	t := r.t
	dir := t.TempDir()
	create := func(name string) *os.File {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	kernel, pages, idx := create("kernel"), create("pages"), create("idx")
	defer kernel.Close()
	defer idx.Close()
	kw := image.NewWriter(kernel)
	files := map[image.ID]mem.Mappable{}
	set := &mem.FrameSet{}
	se := &mm.SaveEnv{Saver: image.NewSaver(kw), Frames: set, VDSO: r.vdso.Mappable(), VDSOLayout: r.vdso.(*vdso.Image).Layout()}
	se.SaveMappable = func(m mem.Mappable) (image.ID, error) {
		id, _ := se.Saver.ID(m)
		files[id] = m
		return id, nil
	}
	mf := r.mm.MemFile()
	id, err := r.mm.Save(se)
	check(err)
	frames, err := mf.SaveFrames(se.Saver, set)
	check(err)
	_, err = kw.Close()
	check(err)
	pw, err := image.NewPageWriter(pages, idx, false)
	check(err)
	if live {
		s, err := mf.BeginSnapshot(set, pw)
		check(err)
		r.mm.SwapForSnapshot()
		check(s.Write())
		s.Close()
	} else {
		check(mf.WritePages(pw, set))
	}
	_, _, _, err = pw.Close()
	check(err)

	kernel.Seek(0, 0)
	idx.Seek(0, 0)
	kr, err := image.NewReader(kernel)
	check(err)
	x, err := image.LoadRecords(kr, func(image.Kind) bool { return true })
	check(err)
	p, err := image.OpenPages(pages, idx)
	check(err)
	mf2, err := mem.New()
	check(err)
	fm, err := mf2.RestoreFrames(x, frames, p, r.acct)
	check(err)
	v2 := testVDSO(t, mf2)
	m2, err := mm.Restore(&mm.RestoreEnv{
		Restorer: x, MemFile: mf2, Account: r.acct, Group: r.group, Frames: fm,
		VDSO: v2.Mappable(), VDSOLayout: v2.(*vdso.Image).Layout(),
		RestoreMappable: func(id image.ID) (mem.Mappable, error) { files[id].IncRef(); return files[id], nil },
	}, id, testLimits)
	check(err)
	fm.Finish()
	fm.StartLoader(func(err error) {
		if err != nil {
			t.Error(err)
		}
	})
	r.mm.DecUsers()
	r.mm, r.vdso = m2, v2
}

// TestCheckpointRun saves and restores the memory of a program again and again while
// it runs, on the real platform.
func TestCheckpointRun(t *testing.T) {
	program := []string{"/usr/bin/bash", "--norc", "--noprofile", "-c",
		"x=; for i in {1..400}; do x=$x$i; [ $((i%20)) = 0 ] && echo $((i*i)); done; echo ${#x}; exit 7"}
	want, code := runHost(t, program...)
	if code != 7 {
		t.Fatalf("%q, exit %d", want, code)
	}
	calls, restores := 0, 0
	got, code := runDisturbed(t, func(r *hostRun) {
		if calls++; calls%10 == 0 {
			restores++
			r.checkpointed(calls%20 == 0)
		}
	}, program...)
	if got != want || code != 7 {
		t.Errorf("%q, exit %d, want %q", got, code, want)
	}
	t.Logf("%d checkpoints and restores", restores)
}

// TestSnapshotRun writes snapshots of a program that runs on, at every call.
func TestSnapshotRun(t *testing.T) {
	program := []string{"/usr/bin/bash", "--norc", "--noprofile", "-c",
		"x=; for i in {1..400}; do x=$x$i; [ $((i%20)) = 0 ] && echo $((i*i)); done; echo ${#x}; exit 7"}
	null, err := os.OpenFile("/dev/null", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	want, _ := runHost(t, program...)
	var last *mem.Snapshot
	got, code := runDisturbed(t, func(r *hostRun) {
		if last != nil {
			if err := last.Write(); err != nil {
				t.Fatal(err)
			}
			last.Close()
		}
		set := &mem.FrameSet{}
		se := &mm.SaveEnv{
			Saver: image.NewSaver(image.NewWriter(null)), Frames: set, VDSO: r.vdso.Mappable(),
			SaveMappable: func(mem.Mappable) (image.ID, error) { return 1, nil },
		}
		if _, err := r.mm.Save(se); err != nil {
			t.Fatal(err)
		}
		pw, err := image.NewPageWriter(null, null, false)
		if err != nil {
			t.Fatal(err)
		}
		if last, err = r.mm.MemFile().BeginSnapshot(set, pw); err != nil {
			t.Fatal(err)
		}
		r.mm.SwapForSnapshot()
	}, program...)
	if got != want || code != 7 {
		t.Errorf("%q, exit %d, want %q", got, code, want)
	}
}

// TestSnapshotPause measures what does not depend on the amount of memory: a
// program's address space is taken away and it runs on.
func TestSnapshotPause(t *testing.T) {
	for _, size := range []uint64{16 << 20, 1 << 30} {
		if testing.Short() && size > 16<<20 {
			continue
		}
		mf, err := mem.New()
		if err != nil {
			t.Fatal(err)
		}
		p, err := systrap.New(systrap.Options{KeepFDs: []int{mf.FD()}})
		if err != nil {
			t.Skip("no systrap here: ", err)
		}
		g, err := p.NewGroup()
		if err != nil {
			t.Fatal(err)
		}
		m := mm.New(mf, nil, g, testLimits)
		if _, err := m.AddressSpace(); err != nil {
			t.Fatal(err)
		}
		a, err := m.MMap(mm.MMapOpts{Len: size, Prot: platform.Read | platform.Write})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.MAdvise(a, size, unix.MADV_POPULATE_WRITE); err != nil {
			t.Fatal(err)
		}
		for at := a; at < a+size; at += 64 << 10 {
			m.CopyOut(at, []byte("touched"))
		}
		set := &mem.FrameSet{}
		null, err := os.OpenFile("/dev/null", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		pw, _ := image.NewPageWriter(null, null, false)
		se := &mm.SaveEnv{Saver: image.NewSaver(image.NewWriter(null)), Frames: set}
		start := time.Now()
		if _, err := m.Save(se); err != nil {
			t.Fatal(err)
		}
		if _, err := mf.SaveFrames(se.Saver, set); err != nil {
			t.Fatal(err)
		}
		saved := time.Now()
		s, err := mf.BeginSnapshot(set, pw)
		if err != nil {
			t.Fatal(err)
		}
		m.SwapForSnapshot()
		cut := time.Now()
		if _, err := m.AddressSpace(); err != nil {
			t.Fatal(err)
		}
		fresh := time.Now()
		if err := m.HandleFault(a, platform.Write); err != nil {
			t.Fatal(err)
		}
		fault := time.Now()
		if err := s.Write(); err != nil {
			t.Fatal(err)
		}
		written := time.Now()
		s.Close()
		t.Logf("%4d MiB: records %v, cut %v, new address space %v, first write fault %v, written in %v",
			size>>20, saved.Sub(start), cut.Sub(saved), fresh.Sub(cut), fault.Sub(fresh), written.Sub(fault))
		if d := cut.Sub(start); d > 100*time.Millisecond {
			t.Errorf("the pause takes %v", d)
		}
		m.DecUsers()
		g.Close()
		p.Close()
		null.Close()
	}
}
