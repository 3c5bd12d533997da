package fuse

import (
	"math/rand"
	"testing"

	"golang.org/x/sys/unix"

	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// message is what a server writes.
func message(unique uint64, code int32, b []byte) []byte {
	return append(body{}.u32(uint32(outHeader+len(b)), uint32(code)).u64(unique), b...)
}

// opened returns a connection whose server answered INIT, and its device.
func opened(t *testing.T) (*conn, *device) {
	t.Helper()
	cn, d := newConn(), &device{}
	cn.fs = &FS{conn: cn, inodes: map[uint64]*inode{}}
	if err := d.attach(cn); err != nil {
		t.Fatal(err)
	}
	cn.start()
	if err := write(d, message(2, 0, make([]byte, 64))); err != unix.ENOENT {
		t.Errorf("an answer before the question: %v", err)
	}
	if _, _, err := cn.next(minBuffer - 1); err != unix.EINVAL {
		t.Errorf("a small buffer: %v", err)
	}
	msg, r, err := cn.next(1 << 20)
	if err != nil || r == nil || u32(msg, 4) != opInit {
		t.Fatalf("%v, %v", msg, err)
	}
	init := body{}.u32(7, 31, 0, initBigWrites, 0, 1<<20, 0, 0)
	if err := write(d, message(r.unique, 0, append(init, make([]byte, 32)...))); err != nil || cn.state != connOpen {
		t.Fatalf("INIT: %v, state %d", err, cn.state)
	}
	return cn, d
}

func write(d *device, b []byte) error {
	src := mem.KernelBuf(b)
	_, err := d.Write(vfs.KernelCaller(), nil, &src)
	return err
}

func TestAnswers(t *testing.T) {
	cn, d := opened(t)
	cn.post(opGetattr, 1, make([]byte, 16), 104)
	_, r, err := cn.next(2 << 20)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		msg  []byte
		want error
	}{
		{"short", make([]byte, 15), unix.EINVAL},
		{"length", append(message(r.unique, 0, nil), 0), unix.EINVAL},
		{"number", message(r.unique+8, 0, nil), unix.ENOENT},
		{"code", message(r.unique, 1, nil), unix.EINVAL},
		{"low code", message(r.unique, -1000, nil), unix.EINVAL},
		{"notification", message(0, 99, nil), unix.EINVAL},
		{"inode", message(0, notifyInvalInode, make([]byte, 24)), unix.ENOENT},
		{"entry", message(0, notifyInvalEntry, make([]byte, 16)), unix.EINVAL},
		{"too long", message(r.unique, 0, make([]byte, 105)), unix.EINVAL},
		{"again", message(r.unique, 0, nil), unix.ENOENT},
	} {
		if err := write(d, tt.msg); err != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
	if r.err != unix.EIO {
		t.Errorf("the caller gets %v", r.err)
	}
	if cn.posted != 0 {
		t.Errorf("%d bytes are counted", cn.posted)
	}
	for cn.post(opWrite, 1, make([]byte, 1<<20), 8) {
		if cn.posted > maxPosted+2<<20 {
			t.Fatal("no bound")
		}
	}
	d.Release()
	if _, _, err := cn.next(2 << 20); err != unix.ENODEV || cn.posted != 0 {
		t.Errorf("after the end: %v, %d bytes", err, cn.posted)
	}
}

// TestGarbage writes random messages.
func TestGarbage(t *testing.T) {
	cn, d := opened(t)
	rng := rand.New(rand.NewSource(1))
	for range 20000 {
		if rng.Intn(4) == 0 {
			cn.post(uint32(rng.Intn(numOps)), 1, make([]byte, rng.Intn(64)), 200)
			_, _, _ = cn.next(2 << 20)
		}
		b := make([]byte, rng.Intn(300))
		rng.Read(b)
		if len(b) >= outHeader && rng.Intn(8) != 0 {
			copy(b, message(uint64(rng.Intn(int(cn.lastUnique)+4)), int32(-rng.Intn(3)), b[outHeader:]))
		}
		_ = write(d, b)
	}
	d.Release()
}
