// Package fsproto is the protocol between the shim (and later the Sentry) and
// the gofer process.
//
// It runs over a SOCK_SEQPACKET pair: one datagram is one request or one
// answer, a JSON body with at most one descriptor beside it. The client makes
// one call at a time. The shim hands mount trees over and gets back O_PATH
// descriptors of their roots, which it passes on to the Sentry.
package fsproto
