// Package sysvipc is System V shared memory, semaphores and message queues
// (sysvipc(7)), as the calls of shmget(2), semget(2) and msgget(2) see them.
//
// A Namespace holds the objects of an IPC namespace under one lock, a leaf but
// for the memory's own. Objects are found by id, a slot number and a sequence
// number, or by key. A call that has to wait registers with the object's
// queue and tries again; package syscalls does that in its one loop. Shared
// memory is an mm.Shm, which the mappings keep alive; undo lists belong to
// processes (package kernel).
//
// Mirrors Linux's ipc/util.c, ipc/shm.c, ipc/sem.c and ipc/msg.c.
package sysvipc
