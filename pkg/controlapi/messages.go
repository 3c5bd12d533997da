package controlapi

import (
	"encoding/json"
	"time"
)

// Version is the protocol's version. The Sentry reports it in its hello note
// and the shim refuses another one: both are the same binary, so a mismatch
// means that the binary was replaced under a running shim.
const Version = 1

// Methods of requests.
const (
	MethodPing             = "ping"
	MethodCreateContainer  = "create-container"
	MethodStartContainer   = "start-container"
	MethodExec             = "exec"
	MethodKill             = "kill"
	MethodPause            = "pause"
	MethodResume           = "resume"
	MethodPids             = "pids"
	MethodStats            = "stats"
	MethodUpdate           = "update"
	MethodResizePty        = "resize-pty"
	MethodDestroyContainer = "destroy-container"
	MethodShutdown         = "shutdown"
	MethodCheckpoint       = "checkpoint"
	MethodCancelCheckpoint = "cancel-checkpoint"
)

// Methods of notes, which the Sentry sends without being asked.
const (
	NoteHello         = "hello"
	NoteExit          = "exit"
	NoteOOM           = "oom"
	NoteLog           = "log"
	NoteRestoreLoaded = "restore-loaded"
	NoteRestoreFailed = "restore-failed"
)

// Hello is the first frame of the Sentry: it has booted and takes calls.
type Hello struct {
	Version int `json:"version"`
	// BootNanos is how long the sandbox took from the start of its main
	// function to this note.
	BootNanos int64 `json:"bootNanos,omitempty"`
}

// NoFile stands for "no descriptor" where a message names one by its index in
// the frame's descriptors.
const NoFile = -1

// Stdio names the three standard descriptors of a process by their index in
// the frame's descriptors. NoFile gives the process the guest's /dev/null.
type Stdio struct {
	Stdin  int `json:"stdin"`
	Stdout int `json:"stdout"`
	Stderr int `json:"stderr"`
}

// Mount is a host directory or file that the gofer has opened for a container.
type Mount struct {
	// Index is the place of the mount in the spec's mounts, or RootfsIndex.
	Index int `json:"index"`
	// File is the index of the O_PATH descriptor in the frame.
	File int `json:"file"`
	// IsDir tells whether the descriptor is a directory.
	IsDir bool `json:"isDir"`
	// ReadOnly is set if the host mount was made read-only for the gofer.
	ReadOnly bool `json:"readOnly"`
}

// Upper is the layer that takes the writes to a container's root.
type Upper struct {
	// File is the index of an empty file of the host that holds its data,
	// NoFile if that is in memory.
	File int `json:"file"`
	// SizeBytes bounds the data; 0 for no bound.
	SizeBytes uint64 `json:"sizeBytes,omitempty"`
}

// RootImage is a file of the host with the file system that is a container's
// root, instead of the mount with RootfsIndex.
type RootImage struct {
	// Type is the file system's: "erofs".
	Type string `json:"type"`
	// File is the index of the descriptor.
	File int `json:"file"`
}

// RootfsIndex is the Mount.Index of a container's root.
const RootfsIndex = -1

// Kinds of containers, from CRI's container-type annotation.
const (
	KindPlain     = ""          // a container of its own, started outside CRI
	KindSandbox   = "sandbox"   // a pod's root (pause) container
	KindContainer = "container" // an app container in a pod
)

// Limits are what the Sentry itself enforces on a container's guest tasks.
// Zero means no limit.
type Limits struct {
	MemoryBytes int64 `json:"memoryBytes,omitempty"`
	Pids        int64 `json:"pids,omitempty"`
}

// CreateContainerRequest sets a container up; nothing runs yet.
type CreateContainerRequest struct {
	ID string `json:"id"`
	// SandboxID is the pod's id, the same for all containers of a Sentry.
	SandboxID string `json:"sandboxID"`
	Kind      string `json:"kind,omitempty"`
	// Root is set for the first container of a Sentry, whose end ends all.
	Root bool `json:"root,omitempty"`
	// Spec is the OCI configuration (specs.Spec) as the shim read it.
	Spec     json.RawMessage `json:"spec"`
	Terminal bool            `json:"terminal,omitempty"`
	Stdio    Stdio           `json:"stdio"`
	Mounts   []Mount         `json:"mounts"`
	Limits   Limits          `json:"limits"`
	// Upper is nil if writes to the root go to the host, or if there is
	// nothing to write to.
	Upper *Upper `json:"upper,omitempty"`
	// RootImage is nil if the root is a directory of the host.
	RootImage *RootImage `json:"rootImage,omitempty"`
	// Hostname is the name to start with: the spec's, or the host's if the
	// spec has none or no UTS namespace. It has no effect with JoinUTS.
	Hostname string `json:"hostname,omitempty"`
	// JoinPID, JoinIPC and JoinUTS name the container of this Sentry whose
	// namespace the new one shares; empty for a namespace of its own. They
	// stand for the paths in the spec's namespaces, which name host processes.
	JoinPID string `json:"joinPID,omitempty"`
	JoinIPC string `json:"joinIPC,omitempty"`
	JoinUTS string `json:"joinUTS,omitempty"`
	// Restore is set if the container comes from an image.
	Restore *Restore `json:"restore,omitempty"`
}

// CreateContainerResponse answers CreateContainerRequest. The frame carries
// one descriptor: a pidfd of the host process from which the container's stubs
// are cloned. The shim moves that process into the container's cgroup, so it
// must not have made a stub for the guest before StartContainer.
type CreateContainerResponse struct {
	// Pid is init's pid in the sandbox's root pid namespace.
	Pid int `json:"pid"`
}

// ContainerRequest is the body of the calls that need no more than an id.
type ContainerRequest struct {
	ID string `json:"id"`
}

// StartContainerResponse answers StartContainer.
type StartContainerResponse struct {
	Pid int `json:"pid"`
}

// ExecRequest starts one more process in a running container.
type ExecRequest struct {
	ID     string `json:"id"`
	ExecID string `json:"execID"`
	// Process is the OCI process (specs.Process).
	Process  json.RawMessage `json:"process"`
	Terminal bool            `json:"terminal,omitempty"`
	Stdio    Stdio           `json:"stdio"`
}

// ExecResponse answers ExecRequest. The frame may carry a pidfd of the host
// process that stands for the new process.
type ExecResponse struct {
	Pid int `json:"pid"`
}

// KillRequest sends a signal to init (no ExecID), to an exec'd process, or to
// every process of the container (All).
type KillRequest struct {
	ID     string `json:"id"`
	ExecID string `json:"execID,omitempty"`
	Signal int    `json:"signal"`
	All    bool   `json:"all,omitempty"`
}

// Process is a guest process in a PidsResponse.
type Process struct {
	// Pid is in the sandbox's root pid namespace.
	Pid int `json:"pid"`
	// ExecID is set for a process that Exec started.
	ExecID string `json:"execID,omitempty"`
	// Init is set for the container's init.
	Init bool `json:"init,omitempty"`
}

// PidsResponse lists the live processes (thread groups) of a container.
type PidsResponse struct {
	Processes []Process `json:"processes"`
}

// StatsResponse holds what only the Sentry knows of a container.
type StatsResponse struct {
	// MemoryBytes is charged to the container: anonymous memory, tmpfs, cache.
	MemoryBytes int64 `json:"memoryBytes"`
	// CacheBytes is the part of MemoryBytes that could be dropped.
	CacheBytes int64 `json:"cacheBytes"`
	// MemoryMaxBytes is the highest MemoryBytes so far.
	MemoryMaxBytes int64  `json:"memoryMaxBytes"`
	Tasks          int64  `json:"tasks"`
	OOMKills       uint64 `json:"oomKills"`
}

// UpdateRequest changes the limits of a live container.
type UpdateRequest struct {
	ID     string `json:"id"`
	Limits Limits `json:"limits"`
}

// ResizePtyRequest sets the size of a process's terminal.
type ResizePtyRequest struct {
	ID     string `json:"id"`
	ExecID string `json:"execID,omitempty"`
	Width  uint16 `json:"width"`
	Height uint16 `json:"height"`
}

// ExitNote says that a process that CreateContainer or Exec made has ended.
// The exit of init is the last one of its container: the Sentry kills and
// reports all others first. A process that was never started sends no note.
type ExitNote struct {
	ID     string `json:"id"`
	ExecID string `json:"execID,omitempty"`
	// Status is the exit code, or 128 + the signal that ended the process.
	Status int       `json:"status"`
	At     time.Time `json:"at"`
}

// OOMNote says that the Sentry killed a process of the container because its
// memory limit was reached. It precedes the ExitNote it explains.
type OOMNote struct {
	ID string `json:"id"`
}

// LogNote is a line for the shim's log.
type LogNote struct {
	// Level is one of "debug", "info", "warning", "error".
	Level   string `json:"level"`
	Message string `json:"message"`
}
