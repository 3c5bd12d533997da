package controlapi

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func socketpair(t *testing.T) (*os.File, *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fds[0]), "a"), os.NewFile(uintptr(fds[1]), "b")
}

// notes records what a client is told.
type notes struct {
	exits chan ExitNote
	hello chan Hello
}

func (n notes) RestoreLoaded(RestoreLoadedNote) {}
func (n notes) RestoreFailed(RestoreFailedNote) {}

func (n notes) Hello(h Hello)   { n.hello <- h }
func (n notes) Exit(e ExitNote) { n.exits <- e }
func (n notes) OOM(OOMNote)     {}
func (n notes) Log(LogNote)     {}

func pair(t *testing.T, handle func(*Request)) (*Client, *ServerConn, notes) {
	t.Helper()
	a, b := socketpair(t)
	n := notes{exits: make(chan ExitNote, 8), hello: make(chan Hello, 1)}
	c, err := NewClient(a, n)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewServerConn(b)
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(handle)
	t.Cleanup(func() { c.Close(); s.Close() })
	return c, s, n
}

func TestCallWithFiles(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	big := strings.Repeat("x", 1<<20) // more than a socket buffer holds
	c, _, _ := pair(t, func(r *Request) {
		var req CreateContainerRequest
		if err := r.Decode(&req); err != nil {
			r.Fail(err)
			return
		}
		files := r.TakeFiles()
		if len(files) != 1 || len(req.Spec) != len(big)+2 {
			r.Fail(Errorf(CodeInvalidArgument, "%d files, %d bytes", len(files), len(req.Spec)))
			return
		}
		files[0].WriteString("hello")
		files[0].Close()
		f, _ := os.Open("/dev/null")
		r.Reply(CreateContainerResponse{Pid: 7}, f)
		f.Close()
	})
	req := &CreateContainerRequest{ID: "a", Spec: []byte(`"` + big + `"`)}
	resp, f, err := c.CreateContainer(context.Background(), req, []*os.File{w})
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	if f == nil || resp.Pid != 7 {
		t.Fatalf("pid %d, file %v", resp.Pid, f)
	}
	f.Close()
	got, _ := io.ReadAll(r)
	if string(got) != "hello" {
		t.Fatalf("read %q through the passed pipe", got)
	}
}

func TestErrorKeepsClass(t *testing.T) {
	c, _, _ := pair(t, func(r *Request) { r.Fail(Errorf(CodeNotFound, "no container %q", "x")) })
	err := c.Kill(context.Background(), &KillRequest{ID: "x", Signal: 9})
	if CodeOf(err) != CodeNotFound || err.Error() != `no container "x"` {
		t.Fatalf("got %v (%s)", err, CodeOf(err))
	}
}

func TestCancelAndClose(t *testing.T) {
	c, s, _ := pair(t, func(r *Request) {})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := c.Ping(ctx); err != context.DeadlineExceeded {
		t.Fatalf("cancelled call: %v", err)
	}
	errc := make(chan error)
	go func() { errc <- c.Ping(context.Background()) }()
	time.Sleep(10 * time.Millisecond)
	s.Close()
	if err := <-errc; err != ErrClosed {
		t.Fatalf("call on a closed channel: %v", err)
	}
	<-c.Done()
}

func TestNotes(t *testing.T) {
	_, s, n := pair(t, func(r *Request) {})
	s.Note(NoteHello, Hello{Version: Version})
	s.Note(NoteExit, ExitNote{ID: "c", ExecID: "e", Status: 999})
	if h := <-n.hello; h.Version != Version {
		t.Fatalf("hello %+v", h)
	}
	if e := <-n.exits; e.ID != "c" || e.ExecID != "e" || e.Status != 255 {
		t.Fatalf("exit %+v", e)
	}
}

// A Sentry in the guest's hands must not get more from the shim than the end
// of the connection.
func TestHostileSentry(t *testing.T) {
	tests := []struct {
		name string
		send func(s *ServerConn)
	}{
		{"request", func(s *ServerConn) { s.conn.send(kindRequest, 1, "ping", nil, nil) }},
		{"unknown kind", func(s *ServerConn) { s.conn.send(9, 1, "", nil, nil) }},
		{"unknown note", func(s *ServerConn) { s.Note("x", 1) }},
		{"bad id", func(s *ServerConn) { s.Note(NoteExit, ExitNote{ID: "../x"}) }},
		{"bad json", func(s *ServerConn) { s.conn.send(kindNote, 0, NoteExit, []byte("{"), nil) }},
		{"huge", func(s *ServerConn) {
			s.conn.raw.Write(func(fd uintptr) bool {
				unix.Write(int(fd), []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0})
				return true
			})
		}},
		{"files", func(s *ServerConn) {
			f, _ := os.Open("/dev/null")
			defer f.Close()
			s.conn.send(kindNote, 0, NoteLog, []byte("{}"), []*os.File{f, f, f, f, f})
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, s, _ := pair(t, func(r *Request) {})
			tt.send(s)
			select {
			case <-c.Done():
				if c.Err() == nil {
					t.Error("no reason given")
				}
			case <-time.After(5 * time.Second):
				t.Fatal("the connection lives on")
			}
		})
	}
	t.Run("stray answer", func(t *testing.T) {
		c, s, n := pair(t, func(r *Request) {})
		s.conn.send(kindResult, 77, "", []byte("{}"), nil)
		s.Note(NoteHello, Hello{})
		<-n.hello
		select {
		case <-c.Done():
			t.Fatal("a late answer ended the connection")
		default:
		}
	})
}

func TestValidateID(t *testing.T) {
	tests := []struct {
		id string
		ok bool
	}{{"a", true}, {"a-b.c_D9", true}, {"", false}, {".a", false}, {"a/b", false}, {"a b", false}, {strings.Repeat("a", 300), false}}
	for _, tt := range tests {
		if err := ValidateID(tt.id); (err == nil) != tt.ok {
			t.Errorf("ValidateID(%q) = %v", tt.id, err)
		}
	}
}
