package syscalls

import (
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/kernel"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// hopBudget is the most frames between the run loop and the copy.
const hopBudget = 10

// hopFile records the stack of its reads.
type hopFile struct {
	frames []string
}

func (h *hopFile) Release()                         {}
func (h *hopFile) Ready(mask waitq.Mask) waitq.Mask { return mask }

func (h *hopFile) Read(_ vfs.Caller, _ *vfs.File, dst *mem.UserBuf) (int, error) {
	h.record()
	return dst.CopyOut([]byte("x"))
}

func (h *hopFile) Write(_ vfs.Caller, _ *vfs.File, src *mem.UserBuf) (int, error) {
	h.record()
	n := src.Len()
	src.Skip(n)
	return n, nil
}

// record keeps the functions from the dispatcher to the file.
func (h *hopFile) record() {
	h.frames = nil
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		f, more := frames.Next()
		h.frames = append(h.frames, f.Function)
		if !more || strings.HasSuffix(f.Function, "(*Table).Dispatch") {
			return
		}
	}
}

func TestHopBudget(t *testing.T) {
	run(t, func(g *guest) {
		h := &hopFile{}
		f := vfs.NewAnonFile("hops", h, unix.O_RDWR)
		fd, err := install(g.task, f, false)
		if err != nil {
			g.Fatal(err)
		}
		for _, nr := range []uintptr{unix.SYS_READ, unix.SYS_WRITE} {
			g.must(nr, fd, []byte("y"), 1)
			// The run loop's two frames come before, the file system's own
			// function, the buffer's and mm's copy after.
			if n := 2 + len(h.frames) + 2; n > hopBudget {
				g.Errorf("%s: %d frames: %v", name(nr), n, h.frames)
			}
		}
	})
}

var _ kernel.SyscallTable = (*Table)(nil)
