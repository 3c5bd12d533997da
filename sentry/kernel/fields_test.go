package kernel

import (
	"reflect"
	"strings"
	"testing"
)

// TestFieldsClassified fails for a field that nobody decided about.
func TestFieldsClassified(t *testing.T) {
	for _, v := range []any{
		Task{}, taskAddrs{}, taskMisc{}, ThreadGroup{}, PIDNamespace{}, PID{}, session{}, processGroup{}, groupSignals{}, taskSignals{},
		queuedSignal{}, sigQueue{}, SigHandlers{}, groupTimers{}, cpuTimer{}, posixTimer{}, reentry{}, reentryPart{}, restartState{},
		runState{}, accounting{}, usage{}, UTSNamespace{}, IPCNamespace{}, Container{}, pidfd{}, trapInfo{},
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
