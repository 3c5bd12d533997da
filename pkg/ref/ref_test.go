package ref

import "testing"

func TestCount(t *testing.T) {
	var c Count
	if c.TryInc() {
		t.Fatal("TryInc of an empty count succeeded")
	}
	c.Init()
	c.Inc()
	if !c.TryInc() {
		t.Fatal("TryInc of a held count failed")
	}
	if first, second := c.Dec(), c.Dec(); first || second {
		t.Fatal("Dec said last too early")
	}
	if !c.Dec() {
		t.Fatal("Dec did not say last")
	}
}

func TestLeaks(t *testing.T) {
	k := NewKind("thing")
	before := Snapshot()
	k.Born()
	if got := Leaks(before); got != "thing: 1 more" {
		t.Fatalf("Leaks = %q", got)
	}
	k.Died()
	if got := Leaks(before); got != "" {
		t.Fatalf("Leaks = %q", got)
	}
}
