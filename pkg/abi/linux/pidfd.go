package linux

// Flags of pidfd_send_signal(2), from <linux/pidfd.h>.
const (
	PIDFD_SIGNAL_THREAD        = 1 << 0
	PIDFD_SIGNAL_THREAD_GROUP  = 1 << 1
	PIDFD_SIGNAL_PROCESS_GROUP = 1 << 2
)
