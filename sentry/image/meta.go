package image

// KindMeta is the one record that says where to begin.
const KindMeta Kind = 1

// Meta is the first thing a restore looks at.
type Meta struct {
	ID ID `cbor:"1,keyasint"`
	// Frames is the record of guest memory.
	Frames ID `cbor:"2,keyasint"`
}
