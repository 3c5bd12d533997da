package gofer

import (
	"testing"

	"runsc/sentry/image"
)

// TestFieldsClassified fails for a field of which nobody has said whether a
// checkpoint keeps it.
func TestFieldsClassified(t *testing.T) {
	for _, v := range []any{Filesystem{}, inode{}, regularFile{}, dirFile{}, fifoFile{}} {
		for _, f := range image.Unclassified(v) {
			t.Errorf("%s has no save tag", f)
		}
	}
}
