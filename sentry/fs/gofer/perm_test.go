package gofer

import (
	"math/bits"
	"math/rand/v2"
	"testing"
)

func testKey(b byte) *[32]byte {
	var k [32]byte
	for i := range k {
		k[i] = b + byte(i)
	}
	return &k
}

// TestPermExhaustive goes through whole small domains.
func TestPermExhaustive(t *testing.T) {
	for half := uint(1); half <= 9; half++ {
		for dev := uint64(0); dev < 3; dev++ {
			p := newPerm(testKey(byte(half)), dev, half)
			n := uint64(1) << (2 * half)
			seen := make([]bool, n)
			for x := uint64(0); x < n; x++ {
				y := p.forward(x)
				if y >= n || seen[y] {
					t.Fatalf("half %d: %d maps to %d, out of range or taken", half, x, y)
				}
				seen[y] = true
				if p.backward(y) != x {
					t.Fatalf("half %d: %d does not map back", half, x)
				}
			}
		}
	}
}

func TestPermLarge(t *testing.T) {
	p := newPerm(testKey(1), 0x801, inodeBits/2)
	for i := 0; i < 200000; i++ {
		x := rand.Uint64() & (hashedBit - 1)
		if i < 1000 {
			x = uint64(i)
		} else if i < 2000 {
			x = hashedBit - 1 - uint64(i-1000)
		}
		y := p.forward(x)
		if y >= hashedBit || p.backward(y) != x {
			t.Fatalf("%#x maps to %#x and back to %#x", x, y, p.backward(y))
		}
	}
}

// TestPermDiffusion looks at the differences of neighbours: about half of the
// bits must change, and no difference may be common.
func TestPermDiffusion(t *testing.T) {
	p := newPerm(testKey(2), 0x801, inodeBits/2)
	const n = 20000
	flips, diffs := 0, map[uint64]int{}
	for x := uint64(1000); x < 1000+n; x++ {
		a, b := p.forward(x), p.forward(x+1)
		flips += bits.OnesCount64(a ^ b)
		diffs[b-a]++
		diffs[a^b]++
	}
	if mean := float64(flips) / n; mean < 25.8 || mean > 26.2 {
		t.Errorf("neighbours differ in %.2f bits on average, want 26", mean)
	}
	for d, c := range diffs {
		if c > 2 {
			t.Errorf("difference %#x occurs %d times", d, c)
		}
	}
}

func TestNumbers(t *testing.T) {
	devs := uint64(0)
	next := func() uint64 { devs++; return devs }
	a := NewNumbers(PolicyHash, *testKey(3), next)
	b := NewNumbers(PolicyHash, *testKey(3), next)
	other := NewNumbers(PolicyHash, *testKey(4), next)
	da, db, do := a.device(5), b.device(5), other.device(5)
	if da == a.device(6) || da.guest == a.device(6).guest || a.device(5) != da {
		t.Error("guest devices are not one per host device")
	}
	same := 0
	for i := uint64(1); i < 1000; i++ {
		x := a.inode(da, i)
		if x>>inodeBits != 1 {
			t.Fatalf("number %#x is not in [2^52, 2^53)", x)
		}
		if x != b.inode(db, i) {
			t.Error("another sandbox of the host has another number")
		}
		if x != a.dirent(da, i) {
			t.Error("d_ino is not st_ino")
		}
		if x == other.inode(do, i) || x == a.inode(a.device(6), i) {
			same++
		}
	}
	if same > 0 {
		t.Errorf("%d numbers do not depend on key or device", same)
	}
	if a.remembered() != 0 {
		t.Error("small numbers are remembered")
	}
}

func TestNumbersLarge(t *testing.T) {
	n := NewNumbers(PolicyHash, *testKey(5), func() uint64 { return 1 })
	d := n.device(1)
	seen := map[uint64]bool{}
	for i := uint64(0); i < 5000; i++ {
		host := hashedBit + i*i<<5
		if i%2 == 1 {
			host = ^uint64(0) - i
		}
		ent := n.dirent(d, host)
		ino := n.inode(d, host)
		if ino < mappedBit || ino >= hashedBit || seen[ino] {
			t.Fatalf("number %#x of %#x is out of range or taken", ino, host)
		}
		if ent != ino {
			t.Errorf("entry of %#x showed %#x, the file has %#x", host, ent, ino)
		}
		if n.inode(d, host) != ino || n.dirent(d, host) != ino {
			t.Error("number changed")
		}
		seen[ino] = true
	}
	if n.remembered() != 5000 {
		t.Errorf("%d numbers remembered, want 5000", n.remembered())
	}
}

// TestNumbersCollision makes two large numbers fold to the same value.
func TestNumbersCollision(t *testing.T) {
	n := NewNumbers(PolicyHash, *testKey(6), func() uint64 { return 1 })
	d := n.device(1)
	first := d.fold(hashedBit + 7)
	d.byHost, d.used = map[uint64]uint64{}, map[uint64]uint64{first: 1}
	if got := n.inode(d, hashedBit+7); got == first || got < mappedBit || got >= hashedBit {
		t.Errorf("got %#x for a taken number", got)
	}
}

func TestPolicies(t *testing.T) {
	h := NewNumbers(PolicyHost, *testKey(0), func() uint64 { return 1 })
	if got := h.inode(h.device(1), 1<<60); got != 1<<60 {
		t.Errorf("host policy: %#x", got)
	}
	m := NewNumbers(PolicyMap, *testKey(0), func() uint64 { return 1 })
	d := m.device(1)
	if m.dirent(d, 42) != m.inode(d, 42) || m.inode(d, 43) == m.inode(d, 42) || m.remembered() != 2 {
		t.Error("map policy does not remember")
	}
	for _, s := range []string{"", "hash", "host", "map"} {
		if _, err := ParsePolicy(s); err != nil {
			t.Error(err)
		}
	}
	if _, err := ParsePolicy("x"); err == nil {
		t.Error("unknown policy accepted")
	}
}

func BenchmarkPerm(b *testing.B) {
	p := newPerm(testKey(1), 1, inodeBits/2)
	x := uint64(12345)
	for b.Loop() {
		x = p.forward(x)
	}
	_ = x
}
