package clock

import (
	"reflect"
	"strings"
	"testing"
)

// TestFieldsClassified fails for a field that nobody decided about.
func TestFieldsClassified(t *testing.T) {
	for _, v := range []any{
		Timer{}, Clock{},
	} {
		typ := reflect.TypeOf(v)
		for i := range typ.NumField() {
			f := typ.Field(i)
			tag := f.Tag.Get("save")
			if tag != "rec" && tag != "rebuilt" && !(strings.HasPrefix(tag, "none: ") && len(tag) > len("none: ")) {
				t.Errorf("%s.%s: save tag %q", typ, f.Name, tag)
			}
		}
	}
}
