// Package host makes files of descriptors that the sandbox was given: the
// standard streams of containers.
//
// A pipe or socket is read and written without blocking; one poller goroutine
// per sandbox waits for all of them with epoll and notifies their wait queues.
// A regular file or terminal is used as it is, without changing the flags of a
// description that the host may share. What the guest sees is a pipe, a
// character device or a file with numbers of the sandbox's own.
package host
