// Package fsproto holds the messages between the gofer and its two peers: the
// shim, which sends it mount trees, and the Sentry, which asks it for what the
// Sentry cannot do itself on donated descriptors.
package fsproto
