//go:build lockrank

package ksync

import "testing"

func panics(f func()) (p any) {
	defer func() { p = recover() }()
	f()
	return nil
}

func TestOrder(t *testing.T) {
	var a, b, c Mutex
	Rank(&a, "test.a")
	Rank(&b, "test.b")
	Rank(&c, "test.c")
	if err := Declare("test.a < test.b"); err != nil {
		t.Fatal(err)
	}
	a.Lock()
	b.Lock()
	AssertHeld(&b)
	b.Unlock()
	c.Lock() // a < c from now on
	c.Unlock()
	a.Unlock()
	for name, f := range map[string]func(){
		"declared order": func() { b.Lock(); defer b.Unlock(); a.Lock() },
		"seen order":     func() { c.Lock(); defer c.Unlock(); a.Lock() },
		"twice":          func() { a.Lock(); defer a.Unlock(); a.Lock() },
		"not held":       func() { AssertHeld(&a) },
	} {
		if panics(f) == nil {
			t.Errorf("%s: no panic", name)
		}
	}
	if err := Declare("test.b < test.a"); err == nil {
		t.Error("a circle is declared")
	}
}
