package shim

import (
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
)

// state is where a process (init or exec'd) is in its life.
type state int

const (
	stateCreated state = iota
	stateRunning
	statePausing
	statePaused
	stateStopped
	stateDeleted
)

var stateNames = [...]string{"created", "running", "pausing", "paused", "stopped", "deleted"}

func (s state) String() string { return stateNames[s] }

// operation is what a client asks of a process.
type operation string

const (
	opStart      operation = "start"
	opPause      operation = "pause"
	opResume     operation = "resume"
	opExec       operation = "exec"
	opKill       operation = "kill"
	opDelete     operation = "delete"
	opCheckpoint operation = "checkpoint"
	opUpdate     operation = "update"
)

// allowed lists the states of init in which an operation is possible.
var allowed = map[operation][]state{
	opStart:      {stateCreated},
	opPause:      {stateRunning},
	opResume:     {statePaused},
	opExec:       {stateCreated, stateRunning},
	opKill:       {stateCreated, stateRunning, statePausing, statePaused},
	opDelete:     {stateCreated, stateStopped},
	opCheckpoint: {stateRunning, statePaused},
	opUpdate:     {stateCreated, stateRunning, statePaused},
}

// check returns an error of the class that containerd expects if a process in
// this state cannot do op. Kill of an ended process is NotFound, which callers
// ignore; they ignore nothing else.
func (s state) check(op operation, what string) error {
	for _, ok := range allowed[op] {
		if s == ok {
			return nil
		}
	}
	if s == stateDeleted {
		return fail(errdefs.ErrNotFound, "%s was deleted", what)
	}
	if op == opKill {
		return fail(errdefs.ErrNotFound, "%s has already ended", what)
	}
	return fail(errdefs.ErrFailedPrecondition, "cannot %s %s: it is %s", op, what, s)
}

// status is the state as the task API has it.
func (s state) status() task.Status {
	switch s {
	case stateCreated:
		return task.Status_CREATED
	case stateRunning:
		return task.Status_RUNNING
	case statePausing:
		return task.Status_PAUSING
	case statePaused:
		return task.Status_PAUSED
	case stateStopped:
		return task.Status_STOPPED
	}
	return task.Status_UNKNOWN
}
