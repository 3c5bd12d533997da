// Package controlapi is the control channel between the shim and the Sentry.
//
// The shim makes a socketpair and gives one end to the sandbox process as an
// inherited descriptor. Frames (a fixed header, a method name, a JSON body and
// up to MaxFiles descriptors) travel both ways: the shim calls, the Sentry
// answers and sends notes of its own accord (an exit, an OOM kill, a log line).
//
// Key types: [Conn] (framing, request ids, descriptor passing), [Client] (what
// the shim uses), the request and response structs in messages.go, and
// [BootConfig] with [OpenBoot] (what the sandbox process is started with). The
// dispatcher of the Sentry's side is sentry/control.
//
// The shim does not trust the Sentry: frames towards it are small, ids in them
// are checked, descriptors that nobody asked for are closed, and a peer that
// breaks the protocol loses the connection, which ends the sandbox.
package controlapi
