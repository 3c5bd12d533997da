package syscalls

import "runsc/sentry/kernel"

// sysExit implements the system call exit, which ends the thread (_exit(2), NOTES).
func sysExit(t *kernel.Task, a Args) (uintptr, error) {
	t.Exit(a.Int(0))
	return 0, nil
}

// sysExitGroup implements exit_group(2).
func sysExitGroup(t *kernel.Task, a Args) (uintptr, error) {
	t.ExitGroup(a.Int(0))
	return 0, nil
}
