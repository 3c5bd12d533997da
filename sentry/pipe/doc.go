// Package pipe implements pipes and fifos (pipe(7), fifo(7)): a ring of bytes
// between the readers and the writers, and the rules of opening a fifo.
//
// A Pipe is the object; its ends are vfs.FileOps made by NewPair (pipe(2)) or
// by OpenFifo, which vfs calls for an inode of type S_IFIFO. No method blocks
// but OpenFifo, which waits for a partner through vfs.Caller. Pipe.mu is held
// over user copies (a sleeping lock); it comes before the locks of mm. Two
// pipes are locked in the order of their ids. It mirrors fs/pipe.c of Linux.
package pipe
