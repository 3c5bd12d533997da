package layers

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "runsc/"

// order is what layers.txt says: below[x] are the nodes that x may import directly.
type order struct {
	below map[string][]string
	never []never
}

type never struct{ from, to, except, why string }

// parse reads layers.txt.
func parse(text string) (*order, error) {
	o := &order{below: map[string][]string{}}
	for n, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if rule, ok := strings.CutPrefix(line, "never "); ok {
			edge, why, ok := strings.Cut(rule, ":")
			from, to, arrow := strings.Cut(edge, " -> ")
			to, except, _ := strings.Cut(to, " except ")
			if !ok || !arrow || strings.TrimSpace(why) == "" {
				return nil, fmt.Errorf("line %d: want never A -> B: why", n+1)
			}
			o.never = append(o.never, never{from, to, except, why})
			continue
		}
		var left []string
		for _, group := range strings.Split(line, " < ") {
			right := strings.Split(group, ", ")
			for _, r := range right {
				o.below[r] = append(o.below[r], left...)
			}
			left = right
		}
	}
	return o, nil
}

// reach returns every node that from may import, through any number of others; an error tells a
// cycle.
func (o *order) reach(from string) (map[string]bool, error) {
	seen := map[string]bool{}
	var walk func(string) error
	walk = func(x string) error {
		for _, b := range o.below[x] {
			if b == from {
				return fmt.Errorf("%s is below itself", from)
			}
			if !seen[b] {
				seen[b] = true
				if err := walk(b); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return seen, walk(from)
}

// match tells whether a package is meant by a pattern of a never line: itself, a tree, or a layer
// that it stands directly below.
func (o *order) match(pattern, pkg string) bool {
	if pattern == "..." || pattern == pkg || slices.Contains(o.below[pattern], pkg) && strings.ToUpper(pattern) == pattern {
		return true
	}
	tree, ok := strings.CutSuffix(pattern, "/...")
	return ok && (pkg == tree || strings.HasPrefix(pkg, tree+"/"))
}

// check returns what is wrong with an import.
func (o *order) check(from, to string, reach map[string]bool) string {
	for _, n := range o.never {
		if o.match(n.from, from) && o.match(n.to, to) && n.except != from {
			return fmt.Sprintf("%s imports %s, never:%s", from, to, n.why)
		}
	}
	if !reach[to] {
		return fmt.Sprintf("%s imports %s, which layers.txt does not put below it", from, to)
	}
	return ""
}

func TestLayers(t *testing.T) {
	text, err := os.ReadFile("layers.txt")
	if err != nil {
		t.Fatal(err)
	}
	o, err := parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "list", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "./...")
	cmd.Dir = "../.."
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		from := strings.TrimPrefix(f[0], module)
		if _, ok := o.below[from]; !ok && !strings.HasPrefix(from, "test/") {
			t.Errorf("%s is not in layers.txt", from)
			continue
		}
		reach, err := o.reach(from)
		if err != nil {
			t.Error(err)
		}
		for _, imp := range f[1:] {
			if to, ok := strings.CutPrefix(imp, module); ok {
				if wrong := o.check(from, to, reach); wrong != "" {
					t.Error(wrong)
				}
			}
		}
	}
}

// TestParse holds the checker itself to examples.
func TestParse(t *testing.T) {
	o, err := parse("a < b, c < L1 # comment\nL1 < d < e\nnever d -> a: secret\nnever ... -> e except f: hidden\ne < f, g\nnever L1 -> x: y\n")
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		from, to string
		fine     bool
	}{
		{"b", "a", true}, {"d", "b", true}, {"e", "a", true}, {"d", "a", false}, {"a", "b", false}, {"b", "c", false},
		{"f", "e", true}, {"g", "e", false}, {"e", "d", true}, {"b", "x", false},
	}
	for _, tt := range tests {
		reach, err := o.reach(tt.from)
		if err != nil {
			t.Fatal(err)
		}
		if wrong := o.check(tt.from, tt.to, reach); (wrong == "") != tt.fine {
			t.Errorf("%s -> %s: %q", tt.from, tt.to, wrong)
		}
	}
	if o, _ := parse("a < b\nb < a\n"); o != nil {
		if _, err := o.reach("a"); err == nil {
			t.Error("a cycle was not found")
		}
	}
	if _, err := parse("never a -> b\n"); err == nil {
		t.Error("a never line without a reason was read")
	}
}
