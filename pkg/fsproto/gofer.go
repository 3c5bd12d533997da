package fsproto

import "os"

// Numbers of the descriptors that a gofer process inherits. Both sockets are
// AF_UNIX SOCK_SEQPACKET pairs made by the shim.
const (
	GoferShimFD   = 3 // socket to the shim: AddMount, RemoveContainer
	GoferSentryFD = 4 // socket to the Sentry: file operations
	GoferLogFD    = 5 // log lines
)

// GoferClient is the shim's side of the socket to the gofer. The gofer ends
// when the socket closes.
type GoferClient interface {
	// AddMount gives the gofer a detached mount tree (borrowed) and returns
	// the tree's root as the gofer opened it: an O_PATH descriptor, whose
	// ".." cannot leave the tree (a directory or, for a bind mount of a
	// file, a file). CloneTree makes such trees; close the tree after the
	// call, so that the gofer's reference is the last. Index is the place in the spec's mounts,
	// controlapi.RootfsIndex for the root.
	AddMount(containerID string, index int, tree *os.File, readonly bool) (root *os.File, err error)
	// RemoveContainer makes the gofer drop all it holds of a container, known
	// or not. When it returns, no file system is kept busy for it.
	RemoveContainer(containerID string) error
	// Close ends the connection and with it the gofer.
	Close() error
}
