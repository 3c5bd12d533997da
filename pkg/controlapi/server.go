package controlapi

import (
	"encoding/json"
	"fmt"
	"os"
)

// Request is a call as the Sentry's side sees it. Exactly one of Reply and
// Fail must be called.
type Request struct {
	Method string

	conn  *Conn
	id    uint64
	body  []byte
	files []*os.File
}

// Decode reads the body into v.
func (r *Request) Decode(v any) error {
	if err := json.Unmarshal(r.body, v); err != nil {
		return Errorf(CodeInvalidArgument, "%s: %v", r.Method, err)
	}
	return nil
}

// TakeFiles hands the descriptors of the call to the caller.
func (r *Request) TakeFiles() []*os.File {
	f := r.files
	r.files = nil
	return f
}

func (r *Request) closeFiles() {
	for _, f := range r.files {
		f.Close()
	}
	r.files = nil
}

// Reply answers the call. The files are borrowed.
func (r *Request) Reply(v any, files ...*os.File) error {
	r.closeFiles()
	if v == nil {
		v = struct{}{}
	}
	body, err := json.Marshal(v)
	if err != nil {
		return r.Fail(err)
	}
	return r.conn.send(kindResult, r.id, "", body, files)
}

// Fail answers the call with an error.
func (r *Request) Fail(err error) error {
	r.closeFiles()
	body, jerr := json.Marshal(toWire(err))
	if jerr != nil {
		return jerr
	}
	return r.conn.send(kindError, r.id, "", body, nil)
}

// ServerConn is the Sentry's end of the channel.
type ServerConn struct{ conn *Conn }

// NewServerConn takes over the socket f.
func NewServerConn(f *os.File) (*ServerConn, error) {
	conn, err := newConn(f, sentryLimits)
	if err != nil {
		return nil, err
	}
	return &ServerConn{conn: conn}, nil
}

// Serve hands each call to handle, in order, from the calling goroutine, until
// the channel ends. Handle must not wait long: later calls wait behind it.
func (s *ServerConn) Serve(handle func(*Request)) error {
	return s.conn.serve(func(f *frame) {
		if f.kind != kindRequest {
			f.closeFiles()
			return
		}
		handle(&Request{Method: f.method, conn: s.conn, id: f.id, body: f.body, files: f.files})
	})
}

// Note sends a note.
func (s *ServerConn) Note(method string, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("note %s: %w", method, err)
	}
	return s.conn.send(kindNote, 0, method, body, nil)
}

// Close ends the channel.
func (s *ServerConn) Close() error { return s.conn.Close() }
