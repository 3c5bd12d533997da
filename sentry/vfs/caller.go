package vfs

import (
	"math"
	"time"

	"runsc/pkg/waitq"
	"runsc/sentry/cred"
)

// kernelCaller acts for the Sentry itself: root with every capability.
type kernelCaller struct {
	cr     *cred.Creds
	waiter *waitq.Waiter
}

// KernelCaller returns a Caller for work of the Sentry's own, such as setting
// up mounts. It is not for use by two goroutines at once.
func KernelCaller() Caller {
	return &kernelCaller{cr: cred.Root(), waiter: waitq.NewWaiter()}
}

func (k *kernelCaller) Cred() *cred.Creds     { return k.cr }
func (k *kernelCaller) Waiter() *waitq.Waiter { return k.waiter }
func (k *kernelCaller) RealTime() int64       { return time.Now().UnixNano() }
func (k *kernelCaller) Rlimit(int) uint64     { return math.MaxUint64 }
func (k *kernelCaller) TGID() int32           { return 0 }

func (k *kernelCaller) Block(w *waitq.Waiter, _ int64) error {
	<-w.C
	return nil
}
