package gofer

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"runsc/sentry/vfs"
)

// benchTree is a directory with n files behind vfs.
func benchTree(b *testing.B, co Coherence, n int) (*vfs.FSContext, []string) {
	b.Helper()
	if os.Getuid() != 0 {
		b.Skip("needs root")
	}
	dir := b.TempDir()
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("/f%d", i)
		if err := os.WriteFile(dir+names[i], nil, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}
	fs, err := NewClient(ClientOptions{ProcSelfFD: -1}).New(Options{RootFD: fd, Coherence: co})
	if err != nil {
		b.Fatal(err)
	}
	ns := vfs.NewNamespace(fs, 0)
	root := ns.Root()
	ctx := vfs.NewFSContext(root, root, 0)
	root.DecRef()
	b.Cleanup(func() {
		ctx.DecRef()
		ns.DecRef()
	})
	return ctx, names
}

// BenchmarkStat measures stat(2) of names seen before (warm) and not (cold).
func BenchmarkStat(b *testing.B) {
	c := vfs.KernelCaller()
	for co, name := range map[Coherence]string{Exclusive: "exclusive", Shared: "shared"} {
		ctx, names := benchTree(b, co, 1000)
		stat := func(i int) {
			at := vfs.At{FS: ctx, Name: names[i%len(names)]}
			if _, err := vfs.StatAt(c, at, unix.STATX_BASIC_STATS); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(name+"/warm", func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				stat(i % 10)
			}
		})
		b.Run(name+"/cold", func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				if i%len(names) == 0 {
					vfs.DropCaches()
				}
				stat(i)
			}
		})
	}
}

// BenchmarkOpen measures open(2) with close(2).
func BenchmarkOpen(b *testing.B) {
	c := vfs.KernelCaller()
	for co, name := range map[Coherence]string{Exclusive: "exclusive", Shared: "shared"} {
		ctx, names := benchTree(b, co, 1)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				f, err := vfs.OpenAt(c, vfs.At{FS: ctx, Name: names[0]}, unix.O_RDONLY, 0)
				if err != nil {
					b.Fatal(err)
				}
				f.DecRef()
			}
		})
	}
}
