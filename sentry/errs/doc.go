// Package errs holds the error numbers that never reach a guest: the restart
// codes of include/linux/errno.h. They are turned into a restart or EINTR in
// one function of the kernel package, before return to the guest.
package errs
