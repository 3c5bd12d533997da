// Package kernel is the process side of the Sentry: tasks, thread groups, pid
// namespaces, sessions, signals, clone, exec, exit and wait, timers and
// containers.
//
// Key types: Kernel (one per sandbox), Container (what the shim knows),
// ThreadGroup (a process), Task (a thread, with a goroutine that runs
// Task.run), PID (a pid with its number in each namespace). Boot makes the
// Kernel and the Containers; system call handlers get a *Task; fs/proc reads
// all of them.
//
// A task's goroutine alternates between guest code (platform.Context.Switch)
// and the Sentry. Whatever has to survive a checkpoint is in the Task, not on
// the goroutine's stack: a blocked call unwinds with a restart code of
// sentry/errs to run.go, and multi-step work (vfork's wait, exec's wait for
// the other threads, a container's init waiting for the rest) is a named run
// state. The only place that sleeps is block.go.
//
// Locks, outermost first: Kernel.mu ("tasks", Linux's tasklist_lock),
// ThreadGroup.sigmu (siglock), SigHandlers.mu; all orders are in
// sentry/LOCKS. It mirrors kernel/{fork,exit,signal,pid,sys}.c and
// fs/exec.c of Linux.
package kernel
