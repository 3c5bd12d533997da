package vfs_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"runsc/pkg/ref"
	"runsc/sentry/fs/anon"
	"runsc/sentry/image"
	"runsc/sentry/sock/afunix"
	"runsc/sentry/vfs"
)

// TestHostile damages records one at a time. Restoring must end with an error
// or without, but never panic.
func TestHostile(t *testing.T) {
	w := pair(t, func(root, vol string) { hostFile(t, root+"/low", "x"); hostFile(t, vol+"/gone", "carried") })
	t.Cleanup(collectSockets)
	damageable(w)
	good := w.save(false)
	recs := splitRecords(t, good.kernel)
	n := newWorld(t, w.root, w.vol)
	t.Cleanup(n.close)
	before := ref.Snapshot()
	try := func(what string, list []rawRecord) {
		s := *good
		s.kernel = joinRecords(t, list)
		m, err := n.tryRestore(&s)
		for _, x := range m {
			x.DecRef()
		}
		n.drop()
		collectSockets()
		vfs.DropCaches()
		if l := ref.Leaks(before); l != "" {
			t.Fatalf("%s (%v): left over: %s", what, err, l)
		}
	}
	for i, r := range recs {
		for key := range r.fields {
			for _, v := range []any{uint64(0), uint64(1), uint64(3), uint64(1) << 62, -1, "..", "a/b", []any{}, true,
				map[any]any{uint64(1): uint64(61), uint64(2): uint64(2)}} {
				list := append([]rawRecord{}, recs...)
				f := map[any]any{}
				for k, x := range r.fields {
					f[k] = x
				}
				f[key] = v
				list[i] = rawRecord{r.kind, f}
				try(fmt.Sprintf("record %d of kind %d, key %v is %v, not %v", i, r.kind, key, v, r.fields[key]), list)
			}
		}
		try(fmt.Sprintf("record %d of kind %d is missing", i, r.kind), append(append([]rawRecord{}, recs[:i]...), recs[i+1:]...))
	}
}

// damageable opens files of many kinds.
func damageable(w *world) {
	w.Helper()
	w.install(w.open("/low", unix.O_RDONLY))
	w.install(w.open("/vol/gone", unix.O_RDONLY))
	w.must(vfs.UnlinkAt(w.c, w.at("/vol/gone")))
	w.writeFile("/tmp/a", strings.Repeat("data", 5000))
	un := w.open("/tmp/a", unix.O_RDWR)
	w.install(un)
	w.must(vfs.UnlinkAt(w.c, w.at("/tmp/a")))
	w.must(un.Flock(w.c, unix.LOCK_EX))
	ep := anon.NewEpoll()
	w.install(vfs.NewAnonFile("e", ep, unix.O_RDWR))
	ev := vfs.NewAnonFile("v", anon.NewEventfd(1, false), unix.O_RDWR)
	w.must(ep.Add(ev, w.install(ev), unix.EPOLLIN, 1))
	w.must(vfs.MknodAt(w.c, w.at("/tmp/fifo"), unix.S_IFIFO|0o600, 0))
	w.install(w.open("/tmp/fifo", unix.O_RDWR))
	a, b := w.pair(unix.SOCK_STREAM)
	w.send(a, "data", w.get(b))
	l, err := afunix.New(unix.SOCK_SEQPACKET)
	w.must(err)
	addr := append([]byte{unix.AF_UNIX, 0}, "/tmp/sock\x00"...)
	w.must(l.Bind(w.c, w.fs, addr))
	w.must(l.Listen(w.c, 5))
	w.socket(l)
	client, err := afunix.New(unix.SOCK_SEQPACKET)
	w.must(err)
	_, err = client.Connect(w.c, w.fs, addr)
	w.must(err)
	w.socket(client)
	in := anon.NewInotify()
	w.install(vfs.NewAnonFile("i", in, unix.O_RDONLY))
	p, err := vfs.LookupAt(w.c, w.at("/tmp"))
	w.must(err)
	_, err = in.Add(p, unix.IN_CREATE)
	p.DecRef()
	w.must(err)
}

// rawRecord is a record as a map.
type rawRecord struct {
	kind   image.Kind
	fields map[any]any
}

func splitRecords(t testing.TB, b []byte) []rawRecord {
	t.Helper()
	r, err := image.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	var list []rawRecord
	for {
		rec, err := r.Next()
		if err != nil {
			return list
		}
		x := rawRecord{rec.Kind, map[any]any{}}
		if err := rec.Decode(&x.fields); err != nil {
			t.Fatal(err)
		}
		list = append(list, x)
	}
}

func joinRecords(t *testing.T, list []rawRecord) []byte {
	t.Helper()
	var b bytes.Buffer
	w := image.NewWriter(&b)
	for _, r := range list {
		if err := w.Put(r.kind, 1, r.fields); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
