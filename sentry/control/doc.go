// Package control serves the Sentry's end of the control channel: it decodes
// the shim's calls, gives them to a [Handler] (sentry/boot) and sends notes
// (exits, OOM kills, log lines) to the shim.
//
// Key types: [Server], [Handler]. The protocol is pkg/controlapi's.
package control
