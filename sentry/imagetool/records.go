package imagetool

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"runsc/pkg/imagefmt"
	"runsc/sentry/image"
)

// state is what the records of an image say.
type state struct {
	// Records counts them by kind.
	Records map[image.Kind]int `json:"records"`
}

// readState reads kernel.img.
func readState(o *imagefmt.Opened) (*state, error) {
	st := &state{Records: map[image.Kind]int{}}
	r, err := image.NewReader(o.State[0])
	if err != nil {
		return nil, err
	}
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return st, nil
		}
		if err != nil {
			return nil, err
		}
		st.Records[rec.Kind]++
	}
}

// print shows the state to people.
func (st *state) print(w io.Writer) error {
	for _, k := range slices.Sorted(maps.Keys(st.Records)) {
		if _, err := fmt.Fprintf(w, "records of kind %d: %d\n", k, st.Records[k]); err != nil {
			return err
		}
	}
	return nil
}
