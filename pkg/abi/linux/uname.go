package linux

// What uname(2) and /proc/sys/kernel say of the guest's kernel. The release is
// one that programs find new enough for what the Sentry implements.
const (
	Sysname = "Linux"
	Release = "6.12.0-runsc"
	Version = "#1 SMP PREEMPT_DYNAMIC"
	Machine = "x86_64"
)
