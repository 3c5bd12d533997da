// Package shim is containerd's side of the runtime: the start, delete and info
// actions, and the daemon that serves the task API for one pod.
//
// One daemon owns one sandbox (a sandbox process, which is the Sentry, and a
// gofer process) and the containers in it. Key types: [service] (the task
// API), [sandbox] (the two processes and the control channel), [container] and
// [process] (the states of a task), [publisher] (events, in order).
//
// Lock order: service.mu < sandbox.mu < container.mu; none is held over a call
// to the Sentry, the gofer or containerd. container.op serialises a
// container's life-cycle operations and is taken before any of them.
//
// On disk, a bundle holds record.json (what the delete action needs, written
// before it exists) and exit.json (the init's exit).
package shim
