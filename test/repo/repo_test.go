package repo

import (
	"bytes"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	top      = "../.."
	maxLines = 800
)

// tracked lists the repository's files, relative to its top: those that git knows or would add.
func tracked(t *testing.T) []string {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard")
	cmd.Dir = top
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, f := range strings.Fields(string(out)) {
		if _, err := os.Stat(filepath.Join(top, f)); err == nil { // one may be deleted and not yet committed
			files = append(files, f)
		}
	}
	return files
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(top, file))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestSizes keeps what was built out of the repository.
func TestSizes(t *testing.T) {
	const most = 256 << 10
	for _, f := range tracked(t) {
		if fi, err := os.Stat(filepath.Join(top, f)); err == nil && fi.Size() > most {
			t.Errorf("%s has %d bytes, more than %d: no source is that long", f, fi.Size(), most)
		}
	}
}

// TestGoFiles checks length and format of each file, and that unsafe stands only in *_unsafe.go of the
// packages that need it.
func TestGoFiles(t *testing.T) {
	// isolate makes system calls on the host that x/sys has no wrapper for.
	mayBeUnsafe := regexp.MustCompile(`^(sentry/(arch|mem|platform)|pkg/(abi|safecopy|isolate))(/|$)`)
	for _, f := range tracked(t) {
		if !strings.HasSuffix(f, ".go") {
			continue
		}
		src := read(t, f)
		if n := bytes.Count(src, []byte("\n")); n > maxLines {
			t.Errorf("%s has %d lines, the cap is %d", f, n, maxLines)
		}
		if want, err := format.Source(src); err != nil {
			t.Errorf("%s: %v", f, err)
		} else if !bytes.Equal(want, src) {
			t.Errorf("%s is not gofmt-ed", f)
		}
		file, err := parser.ParseFile(token.NewFileSet(), f, src, parser.ImportsOnly)
		if err != nil {
			continue // reported above
		}
		for _, imp := range file.Imports {
			if imp.Path.Value != `"unsafe"` || strings.HasSuffix(f, "_test.go") || strings.Contains(f, "/testdata/") {
				continue
			}
			if !strings.HasSuffix(f, "_unsafe.go") {
				t.Errorf("%s imports unsafe, and is no *_unsafe.go", f)
			}
			if !mayBeUnsafe.MatchString(path.Dir(f)) {
				t.Errorf("%s imports unsafe, which its package is not to need", f)
			}
		}
	}
}

// TestPackageDocs wants one package comment in each package, in its doc.go.
func TestPackageDocs(t *testing.T) {
	docs := map[string][]string{}
	for _, f := range tracked(t) {
		if !strings.HasSuffix(f, ".go") || strings.HasSuffix(f, "_test.go") || strings.Contains(f, "/testdata/") {
			continue
		}
		dir := path.Dir(f)
		if _, ok := docs[dir]; !ok {
			docs[dir] = nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), f, read(t, f), parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Error(err)
			continue
		}
		if hasDoc(file) {
			docs[dir] = append(docs[dir], f)
		}
	}
	for dir, files := range docs {
		if len(files) != 1 {
			t.Errorf("package %s has %d package comments, want one: %v", dir, len(files), files)
			continue
		}
		main := strings.HasPrefix(dir, "cmd/") || strings.HasPrefix(dir, "test/tools/")
		if path.Base(files[0]) != "doc.go" && !main {
			t.Errorf("the package comment of %s stands in %s, not in doc.go", dir, files[0])
		}
	}
}

func hasDoc(f *ast.File) bool { return f.Doc != nil && strings.TrimSpace(f.Doc.Text()) != "" }

// TestModule wants go.mod free of replace lines: what is tested is what others build.
func TestModule(t *testing.T) {
	for _, f := range tracked(t) {
		if path.Base(f) == "go.mod" && regexp.MustCompile(`(?m)^\s*replace\b|=>`).Match(read(t, f)) {
			t.Errorf("%s has a replace line", f)
		}
	}
	// Nothing of gVisor but its network stack.
	cmd := exec.Command("go", "list", "-deps", "./cmd/...", "./sentry/...", "./shim/...", "./gofer/...")
	cmd.Dir = top
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for pkg := range strings.FieldsSeq(string(out)) {
		for _, banned := range []string{"gvisor.dev/gvisor/pkg/sentry", "gvisor.dev/gvisor/runsc", "gvisor.dev/gvisor/pkg/shim"} {
			if strings.HasPrefix(pkg, banned) {
				t.Errorf("%s is imported", pkg)
			}
		}
	}
}

// TestNoRegistry wants no registry named anywhere: builds and tests take what they need from this
// repository, Go modules and Debian packages.
func TestNoRegistry(t *testing.T) {
	var hosts []string
	for _, h := range []string{"docker", "registry.k8s", "quay", "ghcr", "gcr"} {
		hosts = append(hosts, h+`\.io`)
	}
	named := regexp.MustCompile(`(^|[^\w.-])(` + strings.Join(hosts, "|") + `)/`)
	for _, f := range tracked(t) {
		if path.Base(f) == "go.sum" {
			continue
		}
		if m := named.Find(read(t, f)); m != nil {
			t.Errorf("%s names a registry: %q", f, m)
		}
	}
}

// TestSkips wants each line of the list of skipped tests to be of a test that exists.
func TestSkips(t *testing.T) {
	tests := map[string]bool{}
	for _, f := range tracked(t) {
		if strings.HasSuffix(f, "_test.go") {
			for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(read(t, f), -1) {
				tests[string(m[1])] = true
			}
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^\| (Test[^| ]*) \|(.*)$`).FindAllSubmatch(read(t, "test/SKIPS.md"), -1) {
		name, _, _ := strings.Cut(string(m[1]), "/")
		if !tests[name] {
			t.Errorf("SKIPS.md names %s, which does not exist", name)
		}
		if !regexp.MustCompile(`^ (all|runc|runsc) \| \S.* \|$`).Match(m[2]) {
			t.Errorf("SKIPS.md: the line of %s lacks a runtime or a reason", name)
		}
	}
}

// TestMakefile wants a help text for each target.
func TestMakefile(t *testing.T) {
	for _, line := range strings.Split(string(read(t, "Makefile")), "\n") {
		if m := regexp.MustCompile(`^([a-z][\w-]*):([^=].*)?$`).FindStringSubmatch(line); m != nil && !strings.Contains(line, "## ") {
			t.Errorf("target %s has no ## help", m[1])
		}
	}
}
