package controlapi

import (
	"errors"
	"fmt"
)

// Code classifies a failed call so that the shim can give containerd the error
// class it acts on.
type Code string

// Codes. An error without one is CodeInternal.
const (
	CodeInternal           Code = "internal"
	CodeNotFound           Code = "not-found"
	CodeAlreadyExists      Code = "already-exists"
	CodeFailedPrecondition Code = "failed-precondition"
	CodeInvalidArgument    Code = "invalid-argument"
	CodeUnimplemented      Code = "unimplemented"
	CodeCanceled           Code = "canceled"
)

// Error is a failed call as it travels over the channel.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Errorf makes an Error of a class.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// CodeOf returns the class of an error, CodeInternal if it has none.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) && e.Code != "" {
		return e.Code
	}
	return CodeInternal
}

// maxErrorLen bounds a message from the Sentry, which ends up in containerd's
// log and in front of users.
const maxErrorLen = 4096

// toWire turns any error into an Error of bounded size.
func toWire(err error) *Error {
	var e *Error
	if !errors.As(err, &e) {
		e = &Error{Code: CodeInternal, Message: err.Error()}
	} else if e.Message != err.Error() {
		// Wrapped on its way: keep the outer text and the inner class.
		e = &Error{Code: e.Code, Message: err.Error()}
	}
	if len(e.Message) > maxErrorLen {
		e = &Error{Code: e.Code, Message: e.Message[:maxErrorLen]}
	}
	return e
}

// ErrClosed is the error of calls on a connection that has ended.
var ErrClosed = errors.New("control channel closed")
