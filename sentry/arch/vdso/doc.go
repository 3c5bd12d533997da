// Package vdso is the vDSO of guests: a shared object of one page that is
// built at boot from code in text_amd64.s, and before it a page of data (vvar)
// with which that code tells the time from the processor's time stamp counter.
//
// It exports what Linux's does (vdso(7)): __vdso_clock_gettime,
// __vdso_gettimeofday, __vdso_time, __vdso_getcpu and __vdso_clock_getres, and
// the same names without prefix, in version LINUX_2.6. The last two are plain
// system calls.
//
// There is no goroutine that keeps the clock. The parameters hold for at most
// a second; a guest that asks later makes a system call, whose handler calls
// Refresh. The guest's clock is a hair slow between two refreshes, so that it is
// never ahead of what system calls return, and a refresh only moves it forward.
//
// Both pages travel with checkpoint images: text and data agree on
// layoutVersion.
package vdso
