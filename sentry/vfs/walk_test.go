package vfs_test

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

func TestLookup(t *testing.T) {
	e := newEnv(t)
	e.mkdir("/a", 0o755)
	e.mkdir("/a/b", 0o755)
	e.write("/a/b/f", "x")
	e.symlink("f", "/a/b/rel")
	e.symlink("/a/b", "/abs")
	e.symlink("a/b/", "/slash")
	e.symlink("loop2", "/loop1")
	e.symlink("loop1", "/loop2")
	e.symlink("nowhere", "/dangling")
	e.mkdir("/private", 0o700)
	long := strings.Repeat("n", 256)
	tests := []struct {
		name, path string
		flags      vfs.LookupFlags
		want       string
		err        error
	}{
		{"root", "/", 0, "/", nil},
		{"many slashes", "///a//b///f", 0, "/a/b/f", nil},
		{"dots", "/a/./b/../b/f", 0, "/a/b/f", nil},
		{"above root", "/../../a", 0, "/a", nil},
		{"relative symlink", "/a/b/rel", 0, "/a/b/f", nil},
		{"symlink itself", "/a/b/rel", vfs.NoFollow, "/a/b/rel", nil},
		{"absolute symlink", "/abs/f", 0, "/a/b/f", nil},
		{"trailing slash follows", "/abs/", vfs.NoFollow, "/a/b", nil},
		{"slash in target", "/slash", 0, "/a/b", nil},
		{"file as directory", "/a/b/f/", 0, "", unix.ENOTDIR},
		{"file in the middle", "/a/b/f/x", 0, "", unix.ENOTDIR},
		{"missing", "/a/x", 0, "", unix.ENOENT},
		{"missing middle", "/x/y", 0, "", unix.ENOENT},
		{"loop", "/loop1", 0, "", unix.ELOOP},
		{"loop unfollowed", "/loop1", vfs.NoFollow, "/loop1", nil},
		{"dangling", "/dangling", 0, "", unix.ENOENT},
		{"empty", "", 0, "", unix.ENOENT},
		{"empty allowed", "", vfs.EmptyPath, "/", nil},
		{"name too long", "/" + long, 0, "", unix.ENAMETOOLONG},
		{"longest name", "/" + long[:255], 0, "", unix.ENOENT},
		{"path too long", strings.Repeat("/a", 2048), 0, "", unix.ENAMETOOLONG},
		{"must be directory", "/a/b/f", vfs.MustDir, "", unix.ENOTDIR},
		{"no symlinks", "/abs/f", vfs.ResolveNoSymlinks, "", unix.ELOOP},
		{"no symlinks, last unfollowed", "/abs", vfs.ResolveNoSymlinks | vfs.NoFollow, "/abs", nil},
		{"beneath, absolute", "/a", vfs.ResolveBeneath, "", unix.EXDEV},
		{"beneath, up", "..", vfs.ResolveBeneath, "", unix.EXDEV},
		{"beneath, up and down", "a/../a", vfs.ResolveBeneath, "/a", nil},
		{"beneath, absolute link", "abs", vfs.ResolveBeneath, "", unix.EXDEV},
		{"in root", "/../abs/f", vfs.ResolveInRoot, "/a/b/f", nil},
	}
	root := e.fs.Root()
	defer root.DecRef()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			at := e.at(tt.path)
			at.Flags = tt.flags
			p, err := vfs.LookupAt(e.c, at)
			if err != tt.err {
				t.Fatalf("error %v, want %v", err, tt.err)
			}
			if err != nil {
				return
			}
			defer p.DecRef()
			if got := p.String(root); got != tt.want {
				t.Fatalf("got %q, want %q", got, tt.want)
			}
		})
	}
	t.Run("permission", func(t *testing.T) {
		user := newTask(1000)
		if _, err := vfs.LookupAt(user, e.at("/private/x")); err != unix.EACCES {
			t.Fatalf("error %v, want EACCES", err)
		}
		if _, err := vfs.LookupAt(e.c, e.at("/private/x")); err != unix.ENOENT {
			t.Fatalf("error %v, want ENOENT", err)
		}
	})
}

func TestOpenErrors(t *testing.T) {
	e := newEnv(t)
	e.mkdir("/d", 0o755)
	e.mkdir("/sticky", 0o1777)
	if err := vfs.ChmodAt(e.c, e.at("/sticky"), 0o1777); err != nil {
		t.Fatal(err)
	}
	e.write("/f", "hello")
	e.write("/secret", "x")
	if err := vfs.ChmodAt(e.c, e.at("/secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	e.symlink("f", "/l")
	e.symlink("new", "/tonew")
	e.mkdir("/ro", 0o755)
	e.mount("/ro", 0)
	e.write("/ro/f", "x")
	if err := vfs.RemountAt(e.c, e.at("/ro"), unix.MS_RDONLY, false, ""); err != nil {
		t.Fatal(err)
	}
	root, user := e.c, newTask(1000)
	tests := []struct {
		name  string
		c     *task
		path  string
		flags uint32
		want  error
	}{
		{"read", root, "/f", unix.O_RDONLY, nil},
		{"exclusive on file", root, "/f", unix.O_CREAT | unix.O_EXCL, unix.EEXIST},
		{"exclusive on link", root, "/l", unix.O_CREAT | unix.O_EXCL, unix.EEXIST},
		{"exclusive on dangling link", root, "/tonew", unix.O_CREAT | unix.O_EXCL, unix.EEXIST},
		{"create through dangling link", root, "/tonew", unix.O_CREAT | unix.O_WRONLY, nil},
		{"nofollow", root, "/l", unix.O_NOFOLLOW, unix.ELOOP},
		{"path of link", root, "/l", unix.O_NOFOLLOW | unix.O_PATH, nil},
		{"directory for writing", root, "/d", unix.O_WRONLY, unix.EISDIR},
		{"create on directory", root, "/d", unix.O_CREAT, unix.EISDIR},
		{"create with slash", root, "/n/", unix.O_CREAT, unix.EISDIR},
		{"file as directory", root, "/f", unix.O_DIRECTORY, unix.ENOTDIR},
		{"create and directory", root, "/d", unix.O_CREAT | unix.O_DIRECTORY, unix.EINVAL},
		{"no permission", user, "/secret", unix.O_RDONLY, unix.EACCES},
		{"no permission to create", user, "/x", unix.O_CREAT | unix.O_WRONLY, unix.EACCES},
		{"create in sticky", user, "/sticky/x", unix.O_CREAT | unix.O_WRONLY, nil},
		{"read-only mount", root, "/ro/f", unix.O_WRONLY, unix.EROFS},
		{"read on read-only mount", root, "/ro/f", unix.O_RDONLY, nil},
		{"create existing on read-only mount", root, "/ro/f", unix.O_CREAT | unix.O_RDONLY, nil},
		{"create on read-only mount", root, "/ro/x", unix.O_CREAT | unix.O_RDONLY, unix.EROFS},
		{"tmpfile", root, "/d", unix.O_TMPFILE | unix.O_RDWR, nil},
		{"tmpfile read-only", root, "/d", unix.O_TMPFILE, unix.EINVAL},
		{"noatime of another", user, "/f", unix.O_NOATIME, unix.EPERM},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, err := vfs.OpenAt(tt.c, e.at(tt.path), tt.flags, 0o644)
			if err != tt.want {
				t.Fatalf("error %v, want %v", err, tt.want)
			}
			if err == nil {
				f.DecRef()
			}
		})
	}
}

func TestNamespaceErrors(t *testing.T) {
	e := newEnv(t)
	e.mkdir("/d", 0o755)
	e.mkdir("/d/sub", 0o755)
	e.write("/f", "x")
	e.mkdir("/mnt", 0o755)
	e.mount("/mnt", 0)
	at := e.at
	tests := []struct {
		name string
		fn   func() error
		want error
	}{
		{"mkdir exists", func() error { return vfs.MkdirAt(e.c, at("/d"), 0o755) }, unix.EEXIST},
		{"mkdir root", func() error { return vfs.MkdirAt(e.c, at("/"), 0o755) }, unix.EEXIST},
		{"mkdir in file", func() error { return vfs.MkdirAt(e.c, at("/f/x"), 0o755) }, unix.ENOTDIR},
		{"mkdir slash", func() error { return vfs.MkdirAt(e.c, at("/new/"), 0o755) }, nil},
		{"rmdir not empty", func() error { return vfs.RmdirAt(e.c, at("/d")) }, unix.ENOTEMPTY},
		{"rmdir file", func() error { return vfs.RmdirAt(e.c, at("/f")) }, unix.ENOTDIR},
		{"rmdir dot", func() error { return vfs.RmdirAt(e.c, at("/d/.")) }, unix.EINVAL},
		{"rmdir dotdot", func() error { return vfs.RmdirAt(e.c, at("/d/..")) }, unix.ENOTEMPTY},
		{"rmdir root", func() error { return vfs.RmdirAt(e.c, at("/")) }, unix.EBUSY},
		{"rmdir mount", func() error { return vfs.RmdirAt(e.c, at("/mnt")) }, unix.EBUSY},
		{"unlink directory", func() error { return vfs.UnlinkAt(e.c, at("/d")) }, unix.EISDIR},
		{"unlink with slash", func() error { return vfs.UnlinkAt(e.c, at("/f/")) }, unix.ENOTDIR},
		{"unlink missing", func() error { return vfs.UnlinkAt(e.c, at("/x")) }, unix.ENOENT},
		{"link directory", func() error { return vfs.LinkAt(e.c, at("/d"), at("/x")) }, unix.EPERM},
		{"link exists", func() error { return vfs.LinkAt(e.c, at("/f"), at("/d")) }, unix.EEXIST},
		{"link across", func() error { return vfs.LinkAt(e.c, at("/f"), at("/mnt/f")) }, unix.EXDEV},
		{"rename across", func() error { return vfs.RenameAt(e.c, at("/f"), at("/mnt/f"), 0) }, unix.EXDEV},
		{"rename into itself", func() error { return vfs.RenameAt(e.c, at("/d"), at("/d/sub/x"), 0) }, unix.EINVAL},
		{"rename over ancestor", func() error { return vfs.RenameAt(e.c, at("/d/sub"), at("/d"), 0) }, unix.ENOTEMPTY},
		{"rename file over dir", func() error { return vfs.RenameAt(e.c, at("/f"), at("/d"), 0) }, unix.EISDIR},
		{"rename dir over file", func() error { return vfs.RenameAt(e.c, at("/d"), at("/f"), 0) }, unix.ENOTDIR},
		{"rename no replace", func() error { return vfs.RenameAt(e.c, at("/f"), at("/d"), unix.RENAME_NOREPLACE) }, unix.EEXIST},
		{"rename mount", func() error { return vfs.RenameAt(e.c, at("/mnt"), at("/x"), 0) }, unix.EBUSY},
		{"rename dot", func() error { return vfs.RenameAt(e.c, at("/d/."), at("/x"), 0) }, unix.EBUSY},
		{"rename missing", func() error { return vfs.RenameAt(e.c, at("/x"), at("/y"), 0) }, unix.ENOENT},
		{"exchange missing", func() error { return vfs.RenameAt(e.c, at("/f"), at("/y"), unix.RENAME_EXCHANGE) }, unix.ENOENT},
		{"exchange flags", func() error { return vfs.RenameAt(e.c, at("/f"), at("/d"), 3) }, unix.EINVAL},
		{"readlink of file", func() error { _, err := vfs.ReadlinkAt(e.c, at("/f")); return err }, unix.EINVAL},
		{"truncate directory", func() error { return vfs.TruncateAt(e.c, at("/d"), 0) }, unix.EISDIR},
		{"chdir to file", func() error { return vfs.ChdirAt(e.c, at("/f")) }, unix.ENOTDIR},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.fn(); err != tt.want {
				t.Fatalf("error %v, want %v", err, tt.want)
			}
		})
	}
}

func TestRename(t *testing.T) {
	e := newEnv(t)
	e.mkdir("/a", 0o755)
	e.mkdir("/b", 0o755)
	e.mkdir("/a/sub", 0o755)
	e.write("/a/f", "A")
	e.write("/b/f", "B")
	if err := vfs.ChdirAt(e.c, e.at("/a/sub")); err != nil {
		t.Fatal(err)
	}
	for _, m := range [][2]string{{"/a/f", "/b/f"}, {"/a/sub", "/b/sub"}} {
		if err := vfs.RenameAt(e.c, e.at(m[0]), e.at(m[1]), 0); err != nil {
			t.Fatalf("rename %v: %v", m, err)
		}
	}
	if got := e.read("/b/f"); got != "A" {
		t.Errorf("/b/f is %q", got)
	}
	if got, err := e.fs.Getcwd(); got != "/b/sub" || err != nil {
		t.Errorf("cwd is %q, %v", got, err)
	}
	if got := e.read("../f"); got != "A" {
		t.Errorf("../f is %q", got)
	}
	if a, b := e.stat("/a").Nlink, e.stat("/b").Nlink; a != 2 || b != 3 {
		t.Errorf("link counts %d and %d, want 2 and 3", a, b)
	}
	e.write("/a/x", "X")
	if err := vfs.RenameAt(e.c, e.at("/a/x"), e.at("/b/sub"), unix.RENAME_EXCHANGE); err != nil {
		t.Fatal(err)
	}
	if got := e.read("/b/sub"); got != "X" {
		t.Errorf("/b/sub is %q after the exchange", got)
	}
	if got, _ := e.fs.Getcwd(); got != "/a/x" {
		t.Errorf("cwd is %q after the exchange", got)
	}
	if err := vfs.RenameAt(e.c, e.at("/b/f"), e.at("/b/g"), unix.RENAME_WHITEOUT); err != nil {
		t.Fatal(err)
	}
	if st := e.stat("/b/f"); st.Mode != unix.S_IFCHR || st.Rdev != 0 {
		t.Errorf("whiteout has mode %o", st.Mode)
	}
	if err := vfs.RmdirAt(e.c, e.at("/a/x")); err != nil {
		t.Fatal(err)
	}
	if _, err := e.fs.Getcwd(); err != unix.ENOENT {
		t.Errorf("getcwd of a removed directory: %v", err)
	}
	if _, err := vfs.OpenAt(e.c, e.at("new"), unix.O_CREAT|unix.O_WRONLY, 0o600); err != unix.ENOENT {
		t.Errorf("create in a removed directory: %v", err)
	}
	root := e.fs.Root()
	defer root.DecRef()
	cwd := e.fs.Cwd()
	defer cwd.DecRef()
	if got := cwd.String(root); got != "/a/x (deleted)" {
		t.Errorf("path of a removed directory is %q", got)
	}
	_ = vfs.ChdirAt(e.c, e.at("/"))
}

func TestStickyAndLinks(t *testing.T) {
	e := newEnv(t)
	e.mkdir("/tmp", 0o777)
	if err := vfs.ChmodAt(e.c, e.at("/tmp"), 0o1777); err != nil {
		t.Fatal(err)
	}
	alice, bob := newTask(1000), newTask(1001)
	f, err := vfs.OpenAt(alice, e.at("/tmp/f"), unix.O_CREAT|unix.O_RDWR, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	f.DecRef()
	if err := vfs.UnlinkAt(bob, e.at("/tmp/f")); err != unix.EPERM {
		t.Errorf("unlink of another's file: %v", err)
	}
	if err := vfs.RenameAt(bob, e.at("/tmp/f"), e.at("/tmp/g"), 0); err != unix.EPERM {
		t.Errorf("rename of another's file: %v", err)
	}
	if err := vfs.LinkAt(bob, e.at("/tmp/f"), e.at("/tmp/g")); err != unix.EPERM {
		t.Errorf("link of another's file: %v", err)
	}
	if err := vfs.SymlinkAt(alice, "/tmp/f", e.at("/tmp/l")); err != nil {
		t.Fatal(err)
	}
	if _, err := vfs.LookupAt(bob, e.at("/tmp/l")); err != unix.EACCES {
		t.Errorf("following another's link in a sticky directory: %v", err)
	}
	if err := vfs.LinkAt(alice, e.at("/tmp/f"), e.at("/tmp/g")); err != nil {
		t.Fatal(err)
	}
	if n := e.stat("/tmp/g").Nlink; n != 2 {
		t.Errorf("link count %d", n)
	}
	if err := vfs.ChownAt(alice, e.at("/tmp/f"), 1001, vfs.KeepID); err != unix.EPERM {
		t.Errorf("chown by the owner: %v", err)
	}
	if err := vfs.ChmodAt(e.c, e.at("/tmp/f"), 0o6755); err != nil {
		t.Fatal(err)
	}
	if err := vfs.ChownAt(e.c, e.at("/tmp/f"), 1001, vfs.KeepID); err != nil {
		t.Fatal(err)
	}
	if m := e.stat("/tmp/f").Mode & 0o7777; m != 0o755 {
		t.Errorf("mode after chown is %o", m)
	}
	if err := vfs.ChmodAt(e.c, e.at("/tmp/f"), 0o4777); err != nil {
		t.Fatal(err)
	}
	f, err = vfs.OpenAt(alice, e.at("/tmp/f"), unix.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.DecRef()
	b := mem.KernelBuf([]byte("x"))
	if _, err := f.Write(alice, &b); err != nil {
		t.Fatal(err)
	}
	if m := e.stat("/tmp/f").Mode & 0o7777; m != 0o777 {
		t.Errorf("mode after a write is %o", m)
	}
}

func TestTmpfileLink(t *testing.T) {
	e := newEnv(t)
	f := e.open("/", unix.O_TMPFILE|unix.O_RDWR)
	b := mem.KernelBuf([]byte("late"))
	if _, err := f.Write(e.c, &b); err != nil {
		t.Fatal(err)
	}
	old := vfs.At{FS: e.fs, Dir: f.Path(), Flags: vfs.EmptyPath}
	if err := vfs.LinkAt(e.c, old, e.at("/named")); err != nil {
		t.Fatal(err)
	}
	f.DecRef()
	if got := e.read("/named"); got != "late" {
		t.Errorf("read %q", got)
	}
	f = e.open("/", unix.O_TMPFILE|unix.O_RDWR|unix.O_EXCL)
	defer f.DecRef()
	old.Dir = f.Path()
	if err := vfs.LinkAt(e.c, old, e.at("/other")); err != unix.ENOENT {
		t.Errorf("link of an exclusive tmpfile: %v", err)
	}
}
