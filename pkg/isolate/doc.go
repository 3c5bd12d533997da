// Package isolate shuts a process of ours in: an empty root, few capabilities,
// no way to more. The sandbox and the gofer use it before they do anything
// else.
//
// Capabilities and no_new_privs belong to a thread, and a Go program has many.
// Setting them for all with syscall.AllThreadsSyscall hangs now and then (with
// Go 1.26, about once in fifty thousand calls, on a thread that never answers).
// So one thread does it all and executes the program anew: what is then a
// process of one thread has what that thread had.
package isolate
