// Package fsproto is the protocols between the gofer process and the shim, and
// between it and the Sentry.
//
// The shim's runs over a SOCK_SEQPACKET pair: one datagram is one request or one
// answer, a JSON body with at most one descriptor beside it. The client makes
// one call at a time. The shim hands mount trees over and gets back O_PATH
// descriptors of their roots, which it passes on to the Sentry in direct mode.
//
// The Sentry's, the file protocol, runs over such sockets too: one datagram of
// binary fields is a call (wire.go), one its answer, with up to two descriptors
// beside it. Files is its client; a call takes one of several sockets.
package fsproto
