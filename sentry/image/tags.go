package image

import (
	"reflect"
	"strings"
)

// Unclassified returns the fields of structure v that carry no valid tag
// "save": "rec" for what is in a record, "rebuilt" for what a restore makes of
// other things, "none: why" for what is not kept. Tests of the packages that
// own the structures call it.
func Unclassified(v any) []string {
	var bad []string
	typ := reflect.TypeOf(v)
	for i := range typ.NumField() {
		f := typ.Field(i)
		switch tag := f.Tag.Get("save"); {
		case tag == "rec" || tag == "rebuilt":
		case strings.HasPrefix(tag, "none: ") && len(tag) > len("none: "):
		default:
			bad = append(bad, typ.String()+"."+f.Name)
		}
	}
	return bad
}
