package errs

import "golang.org/x/sys/unix"

// Restart codes, with Linux's values.
const (
	// ERESTARTSYS: restart if the handler has SA_RESTART or there is none,
	// else EINTR. Block returns it when a signal is pending.
	ERESTARTSYS = unix.Errno(512)
	// ERESTARTNOINTR: always restart.
	ERESTARTNOINTR = unix.Errno(513)
	// ERESTARTNOHAND: restart if there is no handler, else EINTR.
	ERESTARTNOHAND = unix.Errno(514)
	// ERESTARTBLOCK: restart through restart_syscall(2) with the saved
	// restart block if there is no handler, else EINTR.
	ERESTARTBLOCK = unix.Errno(516)
	// ERESTARTCKPT is not Linux's: the container is being saved. The call
	// is entered again, before anything else happens to the task, with the
	// progress it made; it never becomes EINTR.
	ERESTARTCKPT = unix.Errno(517)
)
