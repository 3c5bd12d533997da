package segset

import (
	"math/rand"
	"testing"
)

// TestModel compares a Map of offsets with a plain array.
func TestModel(t *testing.T) {
	const size = 400
	m := Map[uint64]{
		Split: func(v, off uint64) uint64 { return v + off },
		Merge: func(a, b *Seg[uint64]) bool { return a.V+(a.End-a.Start) == b.V },
	}
	var model [size]uint64 // value at each address, 0 is a hole
	r := rand.New(rand.NewSource(1))
	for i := 0; i < 20000; i++ {
		lo := uint64(r.Intn(size))
		hi := lo + 1 + uint64(r.Intn(int(size-lo)))
		switch r.Intn(4) {
		case 0:
			m.Remove(lo, hi, nil)
			for a := lo; a < hi; a++ {
				model[a] = 0
			}
		case 1:
			if m.Overlaps(lo, hi) {
				continue
			}
			v := lo + 1000*uint64(r.Intn(3)+1)
			m.Insert(lo, hi, v)
			for a := lo; a < hi; a++ {
				model[a] = v + (a - lo)
			}
		case 2:
			i, j := m.Isolate(lo, hi)
			for ; i < j; i++ {
				if s := m.At(i); s.Start < lo || s.End > hi {
					t.Fatalf("[%d,%d) crosses [%d,%d)", s.Start, s.End, lo, hi)
				}
			}
		case 3:
			m.MergeRange(lo, hi)
		}
		if i%50 == 0 {
			m.MergeRange(0, size)
		}
		for a := uint64(0); a < size; a++ {
			s := m.Find(a)
			switch {
			case s == nil && model[a] != 0, s != nil && s.V+(a-s.Start) != model[a]:
				t.Fatalf("step %d address %d: %+v, want %d", i, a, s, model[a])
			}
		}
		for k := 1; k < m.Len(); k++ {
			if m.At(k-1).End > m.At(k).Start {
				t.Fatal("out of order")
			}
			if i%50 == 0 && m.At(k-1).End == m.At(k).Start && m.Merge(m.At(k-1), m.At(k)) {
				t.Fatalf("not merged: %+v %+v", m.At(k-1), m.At(k))
			}
		}
	}
}
