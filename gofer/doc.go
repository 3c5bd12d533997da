// Package gofer is the gofer process: it holds the mount trees of a pod, its
// root file systems and bind mounts, for as long as the containers live.
//
// The trees come from the shim as detached mounts by descriptor, so the
// process needs no path of the host: it sits in a mount namespace of its own
// with an empty read-only root. What it gives out to the shim are O_PATH
// descriptors of the trees' roots, with which the Sentry, in direct mode, does
// file operations itself. In remote mode it does them for the Sentry
// (fileServer): those of package hostfs, over the protocol of package fsproto.
package gofer
