// Package sock is what all families of sockets share: the interface by which
// the socket calls reach them, messages and the options of level SOL_SOCKET.
//
// A socket is a vfs.FileOps that implements Socket. As with all files no
// method blocks: EAGAIN says that the caller has to wait, for the time that
// the options say. Families import this package, syscalls imports both.
package sock
