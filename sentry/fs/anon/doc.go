// Package anon implements the files without a name: eventfd(2), epoll(7),
// timerfd_create(2), signalfd(2) and inotify(7).
//
// Each is a vfs.FileOps that the syscalls package wraps with
// vfs.NewAnonFile. None blocks except Epoll.Wait, which sleeps through
// vfs.Caller. Lock order inside: Epoll.mu, then locks of the files watched,
// then their queues, then Epoll.readyMu, then Epoll.queue, then the same of the
// epoll sets that watch this one. It mirrors fs/eventfd.c, fs/eventpoll.c,
// fs/timerfd.c, fs/signalfd.c and fs/notify/inotify of Linux.
package anon
