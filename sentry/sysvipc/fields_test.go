package sysvipc

import (
	"testing"

	"runsc/sentry/image"
)

// TestFieldsClassified fails for a field of which nobody has said whether a
// checkpoint keeps it.
func TestFieldsClassified(t *testing.T) {
	for _, v := range []any{Namespace{}, Perm{}, Segment{}, Set{}, semaphore{}, Undo{}, MsgQueue{}, message{}, table[Set]{}} {
		for _, f := range image.Unclassified(v) {
			t.Errorf("%s has no save tag", f)
		}
	}
}

// TestIDs checks what ids objects get: a slot that is used again has another
// sequence number.
func TestIDs(t *testing.T) {
	n := New()
	var ids []int32
	for range 3 {
		id, err := n.msg.add(&MsgQueue{ns: n})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if ids[0] != 0 || ids[1] != 1 || ids[2] != 2 {
		t.Errorf("first ids: %v", ids)
	}
	q, err := n.msg.find(1)
	if err != nil {
		t.Fatal(err)
	}
	n.msg.remove(q)
	if _, err := n.msg.find(1); err == nil {
		t.Error("a removed queue is found")
	}
	id, err := n.msg.add(&MsgQueue{ns: n})
	if err != nil || id != 1<<slotBits|1 {
		t.Errorf("id %#x: %v", id, err)
	}
	if _, err := n.msg.find(1); err == nil {
		t.Error("the old id names the new queue")
	}
}
