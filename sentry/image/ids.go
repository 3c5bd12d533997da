package image

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
)

// ID names an object within an image; 0 is no object.
type ID uint64

// Saver writes records and numbers the objects that they describe.
type Saver struct {
	w    *Writer
	ids  map[any]ID
	next ID
	// part is the first number of the part that is being written, shared are
	// the objects of earlier parts that it has met.
	part   ID
	shared map[ID]bool
}

// NewSaver returns a saver that writes to w.
func NewSaver(w *Writer) *Saver { return &Saver{w: w, ids: map[any]ID{}} }

// ID returns the number of an object (a pointer) and whether it is new: who
// meets an object first saves it.
func (s *Saver) ID(obj any) (id ID, fresh bool) {
	if id, ok := s.ids[obj]; ok {
		if id < s.part {
			s.shared[id] = true
		}
		return id, false
	}
	s.next++
	s.ids[obj] = s.next
	return s.next, true
}

// Part begins a part of the image: numbers of new objects follow on those of
// earlier parts.
func (s *Saver) Part() { s.part, s.shared = s.next+1, map[ID]bool{} }

// Shared returns the objects of earlier parts that the part has met, in order.
func (s *Saver) Shared() []ID { return slices.Sorted(maps.Keys(s.shared)) }

// Known returns the number of an object that was met before, or 0.
func (s *Saver) Known(obj any) ID { return s.ids[obj] }

// Put appends a record.
func (s *Saver) Put(kind Kind, rec any) error { return s.w.Put(kind, 1, rec) }

// PutLater appends a record when the Writer is closed (see Writer.PutLater).
func (s *Saver) PutLater(kind Kind, rec any) { s.w.PutLater(kind, 1, rec) }

// Restorer holds the records of an image by kind and id, and the objects made
// of them.
type Restorer struct {
	records map[Kind]map[ID]*Record
	order   map[Kind][]ID
	objects map[ID]any
	busy    map[ID]bool
}

// identified is the part of every record that names it: key 1.
type identified struct {
	ID ID `cbor:"1,keyasint"`
}

// LoadRecords reads all records. Kinds that known does not have are an error
// unless they are optional.
func LoadRecords(r *Reader, known func(Kind) bool) (*Restorer, error) {
	x := &Restorer{records: map[Kind]map[ID]*Record{}, order: map[Kind][]ID{}, objects: map[ID]any{}, busy: map[ID]bool{}}
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return x, nil
		}
		if err != nil {
			return nil, err
		}
		if !known(rec.Kind) {
			if rec.Optional {
				continue
			}
			return nil, fmt.Errorf("the image needs kind %d of records, which this version does not know", rec.Kind)
		}
		var i identified
		if err := rec.Decode(&i); err != nil {
			return nil, err
		}
		m := x.records[rec.Kind]
		if m == nil {
			m = map[ID]*Record{}
			x.records[rec.Kind] = m
		}
		if m[i.ID] != nil {
			return nil, fmt.Errorf("the image has two records of kind %d with number %d", rec.Kind, i.ID)
		}
		m[i.ID] = rec
		x.order[rec.Kind] = append(x.order[rec.Kind], i.ID)
	}
}

// IDs returns the numbers of all records of a kind in the order of the image.
func (r *Restorer) IDs(kind Kind) []ID { return r.order[kind] }

// Get decodes the record of a kind with a number.
func (r *Restorer) Get(kind Kind, id ID, rec any) error {
	x := r.records[kind][id]
	if x == nil {
		return fmt.Errorf("the image lacks record %d of kind %d", id, kind)
	}
	return x.Decode(rec)
}

// Has tells whether there is a record of a kind with a number.
func (r *Restorer) Has(kind Kind, id ID) bool { return r.records[kind][id] != nil }

// errCycle is returned for records that need each other to be made.
var errCycle = errors.New("records of the image refer to each other in a circle")

// Once returns the object with the number, made by build at the first call.
// Two objects that need each other are an error.
func Once[T any](r *Restorer, id ID, build func() (T, error)) (T, error) {
	if o, ok := r.objects[id]; ok {
		t, ok := o.(T)
		if !ok {
			return t, fmt.Errorf("object %d of the image is a %T, not what refers to it needs", id, o)
		}
		return t, nil
	}
	var zero T
	if r.busy[id] {
		return zero, errCycle
	}
	r.busy[id] = true
	defer delete(r.busy, id)
	t, err := build()
	if err != nil {
		return zero, err
	}
	r.objects[id] = t
	return t, nil
}

// Object returns the object with the number if it was made.
func Object[T any](r *Restorer, id ID) (T, bool) {
	t, ok := r.objects[id].(T)
	return t, ok
}
