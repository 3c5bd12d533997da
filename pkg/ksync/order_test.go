package ksync

import (
	"os"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	edges, err := Parse("# a comment\na, b sleeps < c < d # more\n\n")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range edges {
		got = append(got, e[0]+e[1])
	}
	if s := strings.Join(got, " "); s != "ac bc cd" {
		t.Error(s)
	}
	for _, bad := range []string{"a <", "a b < c", ", < c"} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// TestOrderOfTheSentry: sentry/LOCKS has no circle.
func TestOrderOfTheSentry(t *testing.T) {
	b, err := os.ReadFile("../../sentry/LOCKS")
	if err != nil {
		t.Fatal(err)
	}
	edges, err := Parse(string(b))
	if err != nil {
		t.Fatal(err)
	}
	after := map[string][]string{}
	for _, e := range edges {
		after[e[0]] = append(after[e[0]], e[1])
	}
	const onPath, done = 1, 2
	state := map[string]int{}
	var visit func(n string, path []string)
	visit = func(n string, path []string) {
		path = append(path, n)
		if state[n] == onPath {
			t.Fatalf("a circle: %s", strings.Join(path, " < "))
		}
		if state[n] == done {
			return
		}
		state[n] = onPath
		for _, m := range after[n] {
			visit(m, path)
		}
		state[n] = done
	}
	for n := range after {
		visit(n, nil)
	}
}
