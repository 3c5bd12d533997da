// Package afunix is the AF_UNIX family (unix(7)): stream, datagram and
// sequenced-packet sockets, in pairs or bound to paths and abstract names,
// with descriptors and credentials as ancillary data.
//
// Socket is the one type. What is sent lies in the inbox of the receiver,
// under the receiver's lock; connecting alone locks two sockets, under
// connectMu. The names in use, and the descriptors in flight, are of the
// sandbox: its containers share one network namespace. Locks: connectMu <
// flightMu < Socket.mu < names.mu; Socket.mu is held over user copies. It mirrors
// net/unix/af_unix.c and garbage.c of Linux.
package afunix
