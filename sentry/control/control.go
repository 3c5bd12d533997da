package control

import (
	"os"
	"sync"
	"time"

	"runsc/pkg/controlapi"
)

// Handler does what the shim asks. Methods are called concurrently, except
// that calls of one shim for one container come in the order it made them and
// never overlap with CreateContainer or DestroyContainer of it.
//
// Errors made with controlapi.Errorf keep their class; any other error is an
// internal one. Files passed in are taken over, also on error; files returned
// are closed by the caller once they are sent.
type Handler interface {
	CreateContainer(req *controlapi.CreateContainerRequest, files []*os.File) (resp *controlapi.CreateContainerResponse, zygote *os.File, err error)
	StartContainer(id string) (pid int, err error)
	Exec(req *controlapi.ExecRequest, files []*os.File) (resp *controlapi.ExecResponse, pidfd *os.File, err error)
	Kill(req *controlapi.KillRequest) error
	Pause(id string) error
	Resume(id string) error
	Pids(id string) ([]controlapi.Process, error)
	Stats(id string) (*controlapi.StatsResponse, error)
	Update(req *controlapi.UpdateRequest) error
	ResizePty(req *controlapi.ResizePtyRequest) error
	DestroyContainer(id string) error
	// Checkpoint writes into the files, which are those of
	// imagefmt.StateFiles; CheckpointRequest says in which state the container
	// is left. CancelCheckpoint makes it return with CodeCanceled, and does
	// nothing if there is no such call.
	Checkpoint(req *controlapi.CheckpointRequest, files []*os.File) (*controlapi.CheckpointResponse, error)
	CancelCheckpoint(id string) error
	// Shutdown is answered before the Sentry ends: the method must only
	// arrange for the end.
	Shutdown()
}

// Server serves one shim.
type Server struct {
	conn *controlapi.ServerConn

	// wg counts calls in flight.
	wg sync.WaitGroup
}

// New takes over the control socket.
func New(f *os.File) (*Server, error) {
	conn, err := controlapi.NewServerConn(f)
	if err != nil {
		return nil, err
	}
	return &Server{conn: conn}, nil
}

// Serve announces that the Sentry has booted and serves calls until the shim
// goes away, which must end the Sentry. Each call has its own goroutine.
func (s *Server) Serve(h Handler, booted time.Duration) error {
	hello := controlapi.Hello{Version: controlapi.Version, BootNanos: int64(booted)}
	if err := s.conn.Note(controlapi.NoteHello, hello); err != nil {
		return err
	}
	err := s.conn.Serve(func(r *controlapi.Request) {
		s.wg.Add(1)
		go func() {
			defer s.wg.Done()
			s.dispatch(h, r)
		}()
	})
	s.wg.Wait()
	return err
}

// Close ends the channel and with it Serve.
func (s *Server) Close() error { return s.conn.Close() }

// NotifyExit tells the shim that a process ended. For init it must be called
// after the notes of all other processes of the container.
func (s *Server) NotifyExit(id, execID string, status int) {
	s.conn.Note(controlapi.NoteExit, controlapi.ExitNote{ID: id, ExecID: execID, Status: status, At: time.Now()})
}

// NotifyOOM tells the shim that the container's memory limit cost a process
// its life.
func (s *Server) NotifyOOM(id string) {
	s.conn.Note(controlapi.NoteOOM, controlapi.OOMNote{ID: id})
}

// NotifyRestoreLoaded tells the shim that nothing is left to be read of a
// restored container's image.
func (s *Server) NotifyRestoreLoaded(id string, bytes int64, took time.Duration) {
	s.conn.Note(controlapi.NoteRestoreLoaded, controlapi.RestoreLoadedNote{ID: id, Bytes: bytes, Nanos: int64(took)})
}

// NotifyRestoreFailed tells the shim why a restored container is about to end.
func (s *Server) NotifyRestoreFailed(id string, reason error) {
	s.conn.Note(controlapi.NoteRestoreFailed, controlapi.RestoreFailedNote{ID: id, Error: reason.Error()})
}

// Log sends a line to the shim's log.
func (s *Server) Log(level, message string) {
	s.conn.Note(controlapi.NoteLog, controlapi.LogNote{Level: level, Message: message})
}

// dispatch answers one call. Errors of Reply mean that the shim is gone, which
// Serve notices.
func (s *Server) dispatch(h Handler, r *controlapi.Request) {
	switch r.Method {
	case controlapi.MethodPing:
		r.Reply(nil)
	case controlapi.MethodCreateContainer:
		var req controlapi.CreateContainerRequest
		if err := r.Decode(&req); err != nil {
			r.Fail(err)
			return
		}
		resp, zygote, err := h.CreateContainer(&req, r.TakeFiles())
		replyFile(r, resp, zygote, err)
	case controlapi.MethodExec:
		var req controlapi.ExecRequest
		if err := r.Decode(&req); err != nil {
			r.Fail(err)
			return
		}
		resp, pidfd, err := h.Exec(&req, r.TakeFiles())
		replyFile(r, resp, pidfd, err)
	case controlapi.MethodStartContainer:
		withID(r, func(id string) (any, error) {
			pid, err := h.StartContainer(id)
			return controlapi.StartContainerResponse{Pid: pid}, err
		})
	case controlapi.MethodKill:
		var req controlapi.KillRequest
		if err := r.Decode(&req); err != nil {
			r.Fail(err)
			return
		}
		reply(r, nil, h.Kill(&req))
	case controlapi.MethodPause:
		withID(r, func(id string) (any, error) { return nil, h.Pause(id) })
	case controlapi.MethodResume:
		withID(r, func(id string) (any, error) { return nil, h.Resume(id) })
	case controlapi.MethodPids:
		withID(r, func(id string) (any, error) {
			procs, err := h.Pids(id)
			return controlapi.PidsResponse{Processes: procs}, err
		})
	case controlapi.MethodStats:
		withID(r, func(id string) (any, error) { return h.Stats(id) })
	case controlapi.MethodUpdate:
		var req controlapi.UpdateRequest
		if err := r.Decode(&req); err != nil {
			r.Fail(err)
			return
		}
		reply(r, nil, h.Update(&req))
	case controlapi.MethodResizePty:
		var req controlapi.ResizePtyRequest
		if err := r.Decode(&req); err != nil {
			r.Fail(err)
			return
		}
		reply(r, nil, h.ResizePty(&req))
	case controlapi.MethodDestroyContainer:
		withID(r, func(id string) (any, error) { return nil, h.DestroyContainer(id) })
	case controlapi.MethodCheckpoint:
		var req controlapi.CheckpointRequest
		if err := r.Decode(&req); err != nil {
			r.Fail(err)
			return
		}
		resp, err := h.Checkpoint(&req, r.TakeFiles())
		reply(r, resp, err)
	case controlapi.MethodCancelCheckpoint:
		withID(r, func(id string) (any, error) { return nil, h.CancelCheckpoint(id) })
	case controlapi.MethodShutdown:
		r.Reply(nil)
		h.Shutdown()
	default:
		r.Fail(controlapi.Errorf(controlapi.CodeUnimplemented, "unknown call %q", r.Method))
	}
}

func withID(r *controlapi.Request, do func(id string) (any, error)) {
	var req controlapi.ContainerRequest
	if err := r.Decode(&req); err != nil {
		r.Fail(err)
		return
	}
	v, err := do(req.ID)
	reply(r, v, err)
}

func reply(r *controlapi.Request, v any, err error) {
	if err != nil {
		r.Fail(err)
		return
	}
	r.Reply(v)
}

func replyFile(r *controlapi.Request, v any, f *os.File, err error) {
	if err != nil {
		if f != nil {
			f.Close()
		}
		r.Fail(err)
		return
	}
	if f == nil {
		r.Reply(v)
		return
	}
	r.Reply(v, f)
	f.Close()
}
