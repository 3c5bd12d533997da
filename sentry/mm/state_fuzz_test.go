package mm

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/fxamacker/cbor/v2"

	"runsc/sentry/image"
	"runsc/sentry/mem"
	"runsc/sentry/platform"
)

// FuzzRestore restores an address space of damaged records: nothing panics,
// and everything is freed.
func FuzzRestore(f *testing.F) {
	marshal := func(v any) []byte {
		b, err := cbor.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		return b
	}
	frames := image.Frames{ID: 3, Ranges: []image.FrameRange{{First: 0, Pages: 16}, {First: 512, Pages: 8, Kind: 1}}}
	f.Add(marshal(image.MM{
		ID: 1, MMapBase: 0x7f0000000000, StackTop: 0x7ff000000000, BrkStart: 0x10000, BrkEnd: 0x11000,
		VMAs: []image.VMA{
			{Start: 0x10000, End: 0x20000, Prot: 3, MaxProt: 7, Name: "[heap]"},
			{Start: 0x20000, End: 0x28000, Prot: 3, MaxProt: 7, Flags: image.VMAShared, Source: image.VMAShm, File: 2},
			{Start: 0x30000, End: 0x32000, Prot: 5, MaxProt: 7, Flags: image.VMASpecial, Source: image.VMAFile, File: 9},
			{Start: 0x40000, End: 0x50000, Prot: 3, Flags: image.VMAGrowsDown, Lock: 2},
		},
		Pages:   []image.PageRun{{Addr: 0x10000, Len: 0x8000, Frame: 0x1000}, {Addr: 0x18000, Len: 0x1000, Frame: 0, COW: true}},
		Windows: []image.Window{{Key: 0, Off: 0}},
	}), marshal(image.Shm{ID: 2, Size: 0x8000, Frames: []image.Extent{{Off: 0x1000, Len: 0x4000, Frame: 0x200000}}}), marshal(frames))
	dir := f.TempDir()
	create := func(name string) *os.File {
		x, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			f.Fatal(err)
		}
		return x
	}
	img, idx := create("img"), create("idx")
	w, err := image.NewPageWriter(img, idx, false)
	if err != nil {
		f.Fatal(err)
	}
	w.Write(0, bytes.Repeat([]byte("page"), 16<<10))
	w.Write(512, bytes.Repeat([]byte("tmpf"), 4<<10))
	w.Close()
	h := &hostFile{f: img, size: 8 << 10, refs: 1}
	f.Fuzz(func(t *testing.T, rec, shm, frames []byte) {
		var b bytes.Buffer
		w := image.NewWriter(&b)
		if w.Put(image.KindMM, 1, cbor.RawMessage(rec)) != nil || w.Put(image.KindShm, 1, cbor.RawMessage(shm)) != nil ||
			w.Put(image.KindFrames, 1, cbor.RawMessage(frames)) != nil {
			return
		}
		w.Close()
		rd, err := image.NewReader(&b)
		if err != nil {
			t.Fatal(err)
		}
		x, err := image.LoadRecords(rd, func(image.Kind) bool { return true })
		if err != nil {
			return
		}
		e := newEnv(t)
		e.acct.SetLimit(16 << 20)
		file, err := os.Open(img.Name())
		if err != nil {
			t.Fatal(err)
		}
		i2, err := os.Open(idx.Name())
		if err != nil {
			t.Fatal(err)
		}
		defer i2.Close()
		p, err := image.OpenPages(file, i2)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		for _, id := range x.IDs(image.KindFrames) {
			fm, err := e.mf.RestoreFrames(x, id, p, e.acct)
			if err != nil {
				continue
			}
			re := &RestoreEnv{
				Restorer: x, MemFile: e.mf, Account: e.acct, Group: &fakeGroup{}, Frames: fm,
				RestoreMappable: func(image.ID) (mem.Mappable, error) { h.IncRef(); return h, nil },
			}
			for _, id := range x.IDs(image.KindMM) {
				m, err := Restore(re, id, e.limits)
				if err != nil {
					continue
				}
				e.space(m)
				for i := 0; i < m.vmas.Len() && i < 8; i++ {
					s := *m.vmas.At(i)
					var b [100]byte
					_, _ = m.CopyIn(b[:], s.Start)
					_, _ = m.CopyOut(s.End-50, b[:])
					_ = m.HandleFault(s.Start, platform.Write)
				}
				_, _ = m.MMap(MMapOpts{Len: 1 << 20, Prot: rw})
				m.Brk(0x20000)
				e.check(m)
				m.DecUsers()
			}
			fm.Finish()
			fm.Abandon()
		}
		e.done()
	})
}
