package syscalls

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write docs/syscalls.md from the table")

const docsPath = "../../docs/syscalls.md"

func TestTableIsSorted(t *testing.T) {
	names := make(map[string]bool)
	for i, c := range calls {
		if i > 0 && calls[i-1].Nr >= c.Nr {
			t.Errorf("%s (%d) comes after %s (%d)", c.Name, c.Nr, calls[i-1].Name, calls[i-1].Nr)
		}
		if c.Nr >= maxNr {
			t.Errorf("%s: number %d is beyond maxNr", c.Name, c.Nr)
		}
		if names[c.Name] {
			t.Errorf("%s stands in the table twice", c.Name)
		}
		names[c.Name] = true
		if c.Handler == nil {
			t.Errorf("%s has no handler", c.Name)
		}
	}
}

func TestPathArgsAreCalls(t *testing.T) {
	names := make(map[string]bool)
	for _, c := range calls {
		names[c.Name] = true
	}
	for name := range pathArgs {
		if !names[name] {
			t.Errorf("pathArgs names %s, which is not in the table", name)
		}
	}
}

// TestDocs compares docs/syscalls.md with the table.
func TestDocs(t *testing.T) {
	want := docs()
	if *update {
		if err := os.WriteFile(docsPath, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(docsPath)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("docs/syscalls.md is out of date: run go test ./sentry/syscalls -run TestDocs -update")
	}
}

func docs() []byte {
	var b bytes.Buffer
	full := 0
	for _, c := range calls {
		if c.Support == Full {
			full++
		}
	}
	b.WriteString("# System calls\n\n")
	b.WriteString("Written from `sentry/syscalls/table.go` by `go test ./sentry/syscalls -run TestDocs -update`.\n\n")
	fmt.Fprintf(&b, "%d calls, %d of them in full. A call that is not listed fails with ENOSYS.\n\n", len(calls), full)
	b.WriteString("| number | call | support |\n|---|---|---|\n")
	for _, c := range calls {
		note := "full"
		if c.Support != Full {
			note = "partial: " + string(c.Support)
		}
		fmt.Fprintf(&b, "| %d | `%s` | %s |\n", c.Nr, c.Name, note)
	}
	return b.Bytes()
}
