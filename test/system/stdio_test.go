//go:build system

package system

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"runsc/test/rig"
)

// slowEOF yields its data and then holds back the end for a while: ctr loses an end of file that it sees before the
// task exists, and hangs.
type slowEOF struct {
	io.Reader
	hold time.Duration
}

func (r slowEOF) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err == io.EOF {
		time.Sleep(r.hold)
	}
	return n, err
}

func input(s []byte) io.Reader { return slowEOF{bytes.NewReader(s), 2 * time.Second} }

// TestStdin pipes data in, up to its end.
func TestStdin(t *testing.T) {
	begin(t)
	ten := bytes.Repeat([]byte("0123456789abcde\n"), 10<<20/16)
	tests := []struct {
		name string
		data []byte
		args []string
		want string
	}{
		{"a line", []byte("abc\n"), []string{"cat"}, "abc\n"},
		{"10 MB counted", ten, []string{"wc", "-c"}, "10485760\n"},
		{"10 MB back again", ten, sh("cat | sha256sum"), ""},
		{"unread", ten[:65536], []string{"true"}, ""},
		{"empty", nil, sh("cat; echo end"), "end\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			res := R.Run(rig.Container{Runtime: runtime, Args: tt.args, Stdin: input(tt.data)})
			if res.Code != 0 || res.TimedOut || tt.want != "" && res.Stdout != tt.want {
				t.Errorf("%s", res)
			}
		})
	}
}

// TestLargeOutput reads more than any buffer holds, from both streams.
func TestLargeOutput(t *testing.T) {
	begin(t)
	res := R.Run(rig.Container{Runtime: runtime, Args: sh("seq 1000000; seq 500000 >&2")})
	if res.Code != 0 || len(res.Stdout) != 6888896 || len(res.Stderr) != 3388895 {
		t.Errorf("exit code %d, %d bytes on stdout, %d on stderr", res.Code, len(res.Stdout), len(res.Stderr))
	}
}

// TestStdinOfExec pipes data into an exec'd process.
func TestStdinOfExec(t *testing.T) {
	begin(t)
	id := detached(t, rig.Container{Args: sh("sleep 1000")})
	res := R.Exec(30*time.Second, input([]byte("through exec\n")), "ctr", "task", "exec", "--exec-id", R.NewID(), id, "cat")
	if res.Code != 0 || res.Stdout != "through exec\n" {
		t.Error(res)
	}
}

// TestLogURI has the shim write the output to a file.
func TestLogURI(t *testing.T) {
	begin(t)
	file := filepath.Join(t.TempDir(), "deep", "log")
	events := watch(t)
	id := R.NewID()
	ok(t, R.Ctr("run", "-d", "--runtime", runtime, "--log-uri", "file://"+file, rig.Busybox, id, "sh", "-c", "echo out; sleep 0.2; echo err >&2; seq 100000"))
	t.Cleanup(func() { R.Remove(id) })
	exits(t, events, id, 0, 10*time.Second)
	ok(t, R.Ctr("task", "rm", id))
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(data); !strings.HasPrefix(got, "out\n") || !strings.Contains(got, "err\n") || len(got) != len("out\nerr\n")+588895 {
		t.Errorf("%d bytes: %.40q", len(got), got)
	}
}

// TestHeldOutput ends a container whose descendant would hold its output open: its end ends them all.
func TestHeldOutput(t *testing.T) {
	begin(t)
	same(t, rig.Container{Args: sh("sleep 1000 & echo done")})
}
