package image

import (
	"reflect"
	"sync"
)

// Warm has the encoder look at the structures that most images have, once. It
// keeps what it finds; else the first save would look while tasks stand still.
var Warm = sync.OnceFunc(func() {
	seen := map[reflect.Type]bool{}
	for _, rec := range []any{
		Meta{}, Container{}, PIDNamespace{}, PID{}, ThreadGroup{}, Task{}, SigHandlers{}, Session{}, ProcessGroup{}, UTS{}, IPC{}, Creds{},
		Futexes{}, FDTable{}, FSContext{}, MountNamespace{}, Mount{}, Superblock{}, Dentry{}, File{}, Tmpfs{}, TmpfsInode{}, TmpfsFile{},
		Overlay{}, OverlayInode{}, Gofer{}, GoferInode{}, Pseudo{}, Pipe{}, PipeEnd{}, HostStream{}, HostOps{}, Eventfd{}, Epoll{},
		UnixSocket{},
	} {
		warm(reflect.TypeOf(rec), seen)
	}
})

// warm encodes an empty structure of each type that t has.
func warm(t reflect.Type, seen map[reflect.Type]bool) {
	if seen[t] {
		return
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		warm(t.Elem(), seen)
	case reflect.Map:
		warm(t.Key(), seen)
		warm(t.Elem(), seen)
	case reflect.Struct:
		_, _ = encMode.Marshal(reflect.New(t).Interface())
		for i := range t.NumField() {
			warm(t.Field(i).Type, seen)
		}
	}
}
