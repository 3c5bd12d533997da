// Package hostfs does the operations of containers' files on the host: one
// implementation, Local, used in two placements. In direct mode the Sentry
// calls it on descriptors of its own; in remote mode the gofer process calls it
// for the Sentry, whose Backend is the client of the file protocol
// (fsproto.Files).
//
// Every name given to an operation is one component, resolved beneath a
// directory descriptor and without following links, so that no name leads out
// of a tree whatever else happens in it. Errors are errnos.
//
// Key types: Backend, Target (what an operation is about), Local.
package hostfs
