package vfs_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"runsc/sentry/image"
	"runsc/sentry/vfs"
)

// FuzzRestore restores files from arbitrary records: an input is a sequence of
// kind (2 bytes), length (2 bytes) and payload.
func FuzzRestore(f *testing.F) {
	w := pair(f, func(root, vol string) {
		hostFile(f, root+"/low", "x")
		hostFile(f, vol+"/gone", "carried")
	})
	f.Cleanup(collectSockets)
	damageable(w)
	good := w.save(false)
	w.drop()
	f.Add(packRecords(f, good.kernel))
	n := newWorld(f, w.root, w.vol)
	f.Cleanup(n.close)
	f.Fuzz(func(t *testing.T, in []byte) {
		n.TB = t
		s := *good
		s.kernel = unpackRecords(in)
		if m, err := n.tryRestore(&s); err == nil {
			for _, x := range m {
				x.DecRef()
			}
			n.drop()
		}
		vfs.DropCaches()
	})
}

func packRecords(t testing.TB, b []byte) (out []byte) {
	for _, r := range splitRecords(t, b) {
		p, err := cbor.Marshal(r.fields)
		if err != nil {
			t.Fatal(err)
		}
		out = binary.LittleEndian.AppendUint16(out, uint16(r.kind))
		out = binary.LittleEndian.AppendUint16(out, uint16(len(p)))
		out = append(out, p...)
	}
	return out
}

func unpackRecords(in []byte) []byte {
	var b bytes.Buffer
	w := image.NewWriter(&b)
	for len(in) >= 4 {
		n := min(int(binary.LittleEndian.Uint16(in[2:])), len(in)-4)
		if cbor.Wellformed(in[4:4+n]) == nil {
			_ = w.Put(image.Kind(binary.LittleEndian.Uint16(in)), 1, cbor.RawMessage(in[4:4+n]))
		}
		in = in[4+n:]
	}
	_, _ = w.Close()
	return b.Bytes()
}
