package ksync

import (
	"fmt"
	"strings"
)

// Parse reads an order: lines of names joined by "," and "<"; all names left
// of a "<" come before all those of the next group. "#" starts a comment, and
// the word "sleeps" after a name is a note for readers.
func Parse(text string) ([][2]string, error) {
	var edges [][2]string
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		var prev []string
		for _, group := range strings.Split(line, "<") {
			var names []string
			for _, n := range strings.Split(group, ",") {
				f := strings.Fields(n)
				if len(f) == 0 || len(f) > 2 || len(f) == 2 && f[1] != "sleeps" {
					return nil, fmt.Errorf("line %d: %q is no name", i+1, strings.TrimSpace(n))
				}
				names = append(names, f[0])
			}
			for _, a := range prev {
				for _, b := range names {
					edges = append(edges, [2]string{a, b})
				}
			}
			prev = names
		}
	}
	return edges, nil
}
