package shim

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
)

// A client that goes away must not end the guest, nor one that never came
// block anything.
func TestOutputWithoutReader(t *testing.T) {
	name := fifo(t)
	io, err := openStdio(stdioNames{Stdout: name}, "a", "ns")
	if err != nil {
		t.Fatal(err)
	}
	defer io.close()
	for range 2 {
		r, err := os.OpenFile(name, os.O_RDONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.guest[1].WriteString("x\n"); err != nil {
			t.Fatal(err)
		}
		var b [2]byte
		if _, err := r.Read(b[:]); err != nil || string(b[:]) != "x\n" {
			t.Fatalf("%q, %v", b, err)
		}
		r.Close()
	}
}

// The output of a process that has ended before its client opened the fifo
// reaches the client, and so does its end.
func TestOutputOfAProcessFasterThanItsClient(t *testing.T) {
	for _, text := range []string{"", "x\n"} {
		name := fifo(t)
		io, err := openStdio(stdioNames{Stdout: name}, "a", "ns")
		if err != nil {
			t.Fatal(err)
		}
		defer io.close()
		io.guest[1].WriteString(text)
		io.sent()
		time.Sleep(50 * time.Millisecond)
		type result struct {
			data []byte
			err  error
		}
		done := make(chan result, 1)
		go func() {
			data, err := os.ReadFile(name)
			done <- result{data, err}
		}()
		select {
		case r := <-done:
			if r.err != nil || string(r.data) != text {
				t.Errorf("%q, %v, want %q", r.data, r.err, text)
			}
		case <-time.After(5 * time.Second):
			t.Errorf("the client of %q waits for ever", text)
			f, err := os.OpenFile(name, os.O_RDWR, 0) // let it go
			if err == nil {
				f.Close()
			}
		}
	}
}

// Nobody waits long at the end for a client that never came, and the guest is
// not stopped by it then.
func TestOutputWithoutClient(t *testing.T) {
	io, err := openStdio(stdioNames{Stdout: fifo(t)}, "a", "ns")
	if err != nil {
		t.Fatal(err)
	}
	defer io.close()
	theirs := io.guest[1]
	io.guest[1] = nil
	go func() {
		defer theirs.Close()
		theirs.Write(make([]byte, 1<<20))
	}()
	start := time.Now()
	io.drain(10 * time.Second)
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("the end took %v", d)
	}
}

// A fifo that is removed before its client opened it holds nobody up.
func TestOutputToRemovedFifo(t *testing.T) {
	name := fifo(t)
	io, err := openStdio(stdioNames{Stdout: name}, "a", "ns")
	if err != nil {
		t.Fatal(err)
	}
	defer io.close()
	os.Remove(name)
	if _, err := io.guest[1].Write(make([]byte, 1<<20)); err != nil {
		t.Error(err)
	}
}

func TestStdinOfAProcessThatNeverReads(t *testing.T) {
	name := fifo(t)
	io, err := openStdio(stdioNames{Stdin: name}, "a", "ns")
	if err != nil {
		t.Fatal(err)
	}
	w, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	io.started()
	go w.Write(make([]byte, 1<<20))
	time.Sleep(20 * time.Millisecond)
	done := make(chan struct{})
	go func() {
		io.close()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Fatal("close hangs")
	}
}

func TestLogProgram(t *testing.T) {
	dir := t.TempDir()
	prog, out := filepath.Join(dir, "prog"), filepath.Join(dir, "out")
	script := "#!/bin/sh\nexec > " + out + "\necho \"$@\" $CONTAINER_ID $CONTAINER_NAMESPACE\nexec 5>&-\ncat <&3 && cat <&4\necho end\n"
	if err := os.WriteFile(prog, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	r := newRig(t)
	uri := "binary://" + prog + "?key=value&flag="
	ctx := context.Background()
	if _, err := r.Create(ctx, &taskapi.CreateTaskRequest{ID: "a", Bundle: r.bundle("a", nil, "echo", "line"), Stdout: uri, Stderr: uri}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Start(ctx, &taskapi.StartRequest{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	r.wait("a", "")
	r.delete("a", "")
	if !loggers.wait(5 * time.Second) {
		t.Error("the log program is left")
	}
	got, _ := os.ReadFile(out)
	want := "flag  key value a ns\nline\nend\n"
	if string(got) != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestLogProgramThatFails(t *testing.T) {
	for _, tt := range []struct{ scheme, want string }{{"binary-v2", "ended before it was ready"}, {"binary", ""}} {
		io, err := openStdio(stdioNames{Stdout: tt.scheme + ":///bin/false"}, "a", "ns")
		if tt.want == "" {
			if err != nil {
				t.Error(err)
			}
		} else if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.scheme, err)
		}
		if io != nil {
			io.close()
		}
	}
	loggers.wait(5 * time.Second)
}
