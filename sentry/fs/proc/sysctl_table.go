package proc

import (
	"fmt"
	"math"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"runsc/pkg/abi/linux"
	"runsc/sentry/fs/mqueue"
	"runsc/sentry/kernel"
	"runsc/sentry/vfs"
)

const (
	maxInt  = math.MaxInt32
	maxLong = math.MaxInt64
)

// sysctlTable has the files of /proc/sys, those of a directory together, with
// Linux's defaults. Most only keep what is written for the programs that read
// it back; the ones with get or set show or change something.
var sysctlTable = []sysctl{
	{path: "fs/aio-max-nr", perm: 0o644, value: "65536", numbers: 1, max: maxLong},
	{path: "fs/aio-nr", perm: 0o444, value: "0"},
	{path: "fs/dentry-state", perm: 0o444, value: "0\t0\t45\t0\t0\t0"},
	{path: "fs/epoll/max_user_watches", perm: 0o644, value: "1048576", numbers: 1, max: maxLong},
	{path: "fs/file-max", perm: 0o644, value: "9223372036854775807", numbers: 1, max: maxLong},
	{path: "fs/file-nr", perm: 0o444, value: "0\t0\t9223372036854775807"},
	{path: "fs/inode-nr", perm: 0o444, value: "0\t0"},
	{path: "fs/inode-state", perm: 0o444, value: "0\t0\t0\t0\t0\t0\t0"},
	{path: "fs/inotify/max_queued_events", perm: 0o644, value: "16384", numbers: 1, max: maxInt},
	{path: "fs/inotify/max_user_instances", perm: 0o644, value: "128", numbers: 1, max: maxInt},
	{path: "fs/inotify/max_user_watches", perm: 0o644, value: "524288", numbers: 1, max: maxInt},
	{path: "fs/lease-break-time", perm: 0o644, numbers: 1, max: maxInt,
		get: func(*instance, vfs.Caller) string { return strconv.FormatInt(vfs.LeaseBreakTime.Load(), 10) },
		set: func(_ *instance, _ vfs.Caller, value string) error {
			n, err := strconv.ParseInt(value, 0, 64)
			if err == nil {
				vfs.LeaseBreakTime.Store(n)
			}
			return err
		}},
	{path: "fs/leases-enable", perm: 0o644, value: "1", numbers: 1, max: 1},
	{path: "fs/mount-max", perm: 0o644, value: "100000", numbers: 1, min: 1, max: maxInt},
	mqueueLimit("msg_default", func(l *mqueue.Limits) *atomic.Int64 { return &l.MsgDefault }, sysctl{numbers: 1, min: 1, max: 65536}),
	mqueueLimit("msg_max", func(l *mqueue.Limits) *atomic.Int64 { return &l.MsgMax }, sysctl{numbers: 1, min: 1, max: 65536}),
	mqueueLimit("msgsize_default", func(l *mqueue.Limits) *atomic.Int64 { return &l.MsgSizeDefault }, sysctl{numbers: 1, min: 128, max: 16777216}),
	mqueueLimit("msgsize_max", func(l *mqueue.Limits) *atomic.Int64 { return &l.MsgSizeMax }, sysctl{numbers: 1, min: 128, max: 16777216}),
	mqueueLimit("queues_max", func(l *mqueue.Limits) *atomic.Int64 { return &l.QueuesMax }, sysctl{numbers: 1, max: maxInt}),
	{path: "fs/nr_open", perm: 0o644, value: "1048576", numbers: 1, min: 64, max: maxInt},
	{path: "fs/overflowgid", perm: 0o644, value: "65534", numbers: 1, max: 65535},
	{path: "fs/overflowuid", perm: 0o644, value: "65534", numbers: 1, max: 65535},
	{path: "fs/pipe-max-size", perm: 0o644, value: "1048576", numbers: 1, min: 4096, max: maxInt},
	{path: "fs/pipe-user-pages-hard", perm: 0o644, value: "0", numbers: 1, max: maxLong},
	{path: "fs/pipe-user-pages-soft", perm: 0o644, value: "16384", numbers: 1, max: maxLong},
	{path: "fs/protected_fifos", perm: 0o600, value: "0", numbers: 1, max: 2},
	{path: "fs/protected_hardlinks", perm: 0o600, value: "1", numbers: 1, max: 1},
	{path: "fs/protected_regular", perm: 0o600, value: "0", numbers: 1, max: 2},
	{path: "fs/protected_symlinks", perm: 0o600, value: "1", numbers: 1, max: 1},
	{path: "fs/suid_dumpable", perm: 0o644, value: "0", numbers: 1, max: 2},

	{path: "kernel/acct", perm: 0o644, value: "4\t2\t30", numbers: 3, max: maxInt},
	{path: "kernel/arch", perm: 0o444, value: linux.Machine},
	{path: "kernel/auto_msgmni", perm: 0o644, value: "0", numbers: 1, max: 1},
	{path: "kernel/cad_pid", perm: 0o600, value: "1", numbers: 1, min: 1, max: maxInt},
	{path: "kernel/cap_last_cap", perm: 0o444, value: strconv.Itoa(unix.CAP_LAST_CAP)},
	{path: "kernel/core_pattern", perm: 0o644, value: "core"},
	{path: "kernel/core_pipe_limit", perm: 0o644, value: "0", numbers: 1, max: maxInt},
	{path: "kernel/core_uses_pid", perm: 0o644, value: "0", numbers: 1, max: 1},
	{path: "kernel/ctrl-alt-del", perm: 0o644, value: "0", numbers: 1, max: 1},
	{path: "kernel/dmesg_restrict", perm: 0o644, value: "1", numbers: 1, max: 1},
	{path: "kernel/domainname", perm: 0o644, get: domainName, set: setDomainName},
	{path: "kernel/hostname", perm: 0o644, get: hostName, set: setHostName},
	{path: "kernel/hung_task_timeout_secs", perm: 0o644, value: "120", numbers: 1, max: maxLong},
	{path: "kernel/io_uring_disabled", perm: 0o644, value: "2", numbers: 1, max: 2},
	{path: "kernel/keys/maxbytes", perm: 0o644, value: "20000", numbers: 1, max: maxInt},
	{path: "kernel/keys/maxkeys", perm: 0o644, value: "200", numbers: 1, max: maxInt},
	{path: "kernel/keys/root_maxbytes", perm: 0o644, value: "25000000", numbers: 1, max: maxInt},
	{path: "kernel/keys/root_maxkeys", perm: 0o644, value: "1000000", numbers: 1, max: maxInt},
	{path: "kernel/kptr_restrict", perm: 0o644, value: "1", numbers: 1, max: 2},
	{path: "kernel/msg_next_id", perm: 0o644, value: "-1", numbers: 1, min: -1, max: maxInt},
	{path: "kernel/msgmax", perm: 0o644, value: "8192", numbers: 1, max: maxInt},
	{path: "kernel/msgmnb", perm: 0o644, value: "16384", numbers: 1, max: maxInt},
	{path: "kernel/msgmni", perm: 0o644, value: "32000", numbers: 1, max: 8388608},
	{path: "kernel/ngroups_max", perm: 0o444, value: "65536"},
	{path: "kernel/nmi_watchdog", perm: 0o644, value: "0", numbers: 1, max: 1},
	{path: "kernel/ns_last_pid", perm: 0o444, get: lastPID},
	{path: "kernel/numa_balancing", perm: 0o644, value: "0", numbers: 1, max: 2},
	{path: "kernel/osrelease", perm: 0o444, value: linux.Release},
	{path: "kernel/ostype", perm: 0o444, value: linux.Sysname},
	{path: "kernel/overflowgid", perm: 0o644, value: "65534", numbers: 1, max: 65535},
	{path: "kernel/overflowuid", perm: 0o644, value: "65534", numbers: 1, max: 65535},
	{path: "kernel/panic", perm: 0o644, value: "0", numbers: 1, min: math.MinInt32, max: maxInt},
	{path: "kernel/panic_on_oops", perm: 0o644, value: "0", numbers: 1, max: 1},
	{path: "kernel/perf_event_max_sample_rate", perm: 0o644, value: "100000", numbers: 1, max: maxInt},
	{path: "kernel/perf_event_mlock_kb", perm: 0o644, value: "516", numbers: 1, max: maxInt},
	{path: "kernel/perf_event_paranoid", perm: 0o644, value: "2", numbers: 1, min: -1, max: 4},
	{path: "kernel/pid_max", perm: 0o644, value: "4194304", numbers: 1, min: 301, max: 4194304},
	{path: "kernel/printk", perm: 0o644, value: "4\t4\t1\t7", numbers: 4, max: maxInt},
	{path: "kernel/printk_ratelimit", perm: 0o644, value: "5", numbers: 1, max: maxInt},
	{path: "kernel/printk_ratelimit_burst", perm: 0o644, value: "10", numbers: 1, max: maxInt},
	{path: "kernel/pty/max", perm: 0o644, value: "4096", numbers: 1, max: 1 << 20},
	{path: "kernel/pty/nr", perm: 0o444, value: "0"},
	{path: "kernel/pty/reserve", perm: 0o644, value: "1024", numbers: 1, max: maxInt},
	{path: "kernel/random/boot_id", perm: 0o444, get: func(in *instance, _ vfs.Caller) string { return in.sys.bootID }},
	{path: "kernel/random/entropy_avail", perm: 0o444, value: "256"},
	{path: "kernel/random/poolsize", perm: 0o444, value: "256"},
	{path: "kernel/random/urandom_min_reseed_secs", perm: 0o644, value: "60", numbers: 1, max: maxInt},
	{path: "kernel/random/uuid", perm: 0o444, get: func(*instance, vfs.Caller) string { return newUUID() }},
	{path: "kernel/random/write_wakeup_threshold", perm: 0o644, value: "256", numbers: 1, max: maxInt},
	{path: "kernel/randomize_va_space", perm: 0o644, value: "2", numbers: 1, max: 2},
	{path: "kernel/sched_autogroup_enabled", perm: 0o644, value: "0", numbers: 1, max: 1},
	{path: "kernel/sched_cfs_bandwidth_slice_us", perm: 0o644, value: "5000", numbers: 1, min: 1, max: maxInt},
	{path: "kernel/sched_rr_timeslice_ms", perm: 0o644, value: "100", numbers: 1, min: math.MinInt32, max: maxInt},
	{path: "kernel/sched_rt_period_us", perm: 0o644, value: "1000000", numbers: 1, min: 1, max: maxInt},
	{path: "kernel/sched_rt_runtime_us", perm: 0o644, value: "950000", numbers: 1, min: -1, max: maxInt},
	{path: "kernel/seccomp/actions_avail", perm: 0o444, value: "kill_process kill_thread trap errno trace log allow"},
	{path: "kernel/seccomp/actions_logged", perm: 0o644, value: "kill_process kill_thread trap errno trace log"},
	{path: "kernel/sem", perm: 0o644, value: "32000\t1024000000\t500\t32000", numbers: 4, max: maxInt},
	{path: "kernel/sem_next_id", perm: 0o644, value: "-1", numbers: 1, min: -1, max: maxInt},
	{path: "kernel/shm_next_id", perm: 0o644, value: "-1", numbers: 1, min: -1, max: maxInt},
	{path: "kernel/shm_rmid_forced", perm: 0o644, value: "0", numbers: 1, max: 1},
	// SHMALL and SHMMAX are beyond a long here, as on Linux.
	{path: "kernel/shmall", perm: 0o644, value: "18446744073692774399", numbers: 1, max: maxLong},
	{path: "kernel/shmmax", perm: 0o644, value: "18446744073692774399", numbers: 1, max: maxLong},
	{path: "kernel/shmmni", perm: 0o644, value: "4096", numbers: 1, max: 32768},
	{path: "kernel/sysctl_writes_strict", perm: 0o644, value: "1", numbers: 1, min: -1, max: 1},
	{path: "kernel/tainted", perm: 0o444, value: "0"},
	{path: "kernel/threads-max", perm: 0o644, value: "192730", numbers: 1, min: 1, max: maxInt},
	{path: "kernel/timer_migration", perm: 0o644, value: "1", numbers: 1, max: 1},
	{path: "kernel/unprivileged_bpf_disabled", perm: 0o644, value: "2", numbers: 1, max: 2},
	{path: "kernel/version", perm: 0o444, value: linux.Version},
	{path: "kernel/watchdog", perm: 0o644, value: "0", numbers: 1, max: 1},
	{path: "kernel/yama/ptrace_scope", perm: 0o644, value: "0", numbers: 1, max: 3},

	{path: "net/core/busy_poll", perm: 0o644, value: "0", numbers: 1, max: maxInt},
	{path: "net/core/default_qdisc", perm: 0o644, value: "pfifo_fast"},
	{path: "net/core/netdev_max_backlog", perm: 0o644, value: "1000", numbers: 1, max: maxInt},
	{path: "net/core/optmem_max", perm: 0o644, value: "131072", numbers: 1, max: maxInt},
	{path: "net/core/rmem_default", perm: 0o644, value: "212992", numbers: 1, min: 256, max: maxInt},
	{path: "net/core/rmem_max", perm: 0o644, value: "212992", numbers: 1, min: 256, max: maxInt},
	{path: "net/core/somaxconn", perm: 0o644, value: "4096", numbers: 1, max: maxInt},
	{path: "net/core/wmem_default", perm: 0o644, value: "212992", numbers: 1, min: 256, max: maxInt},
	{path: "net/core/wmem_max", perm: 0o644, value: "212992", numbers: 1, min: 256, max: maxInt},
	{path: "net/ipv4/conf/all/forwarding", perm: 0o644, value: "0", numbers: 1, max: 1},
	{path: "net/ipv4/conf/all/rp_filter", perm: 0o644, value: "0", numbers: 1, max: 2},
	{path: "net/ipv4/conf/default/forwarding", perm: 0o644, value: "0", numbers: 1, max: 1},
	{path: "net/ipv4/conf/default/rp_filter", perm: 0o644, value: "0", numbers: 1, max: 2},
	{path: "net/ipv4/conf/lo/forwarding", perm: 0o644, value: "0", numbers: 1, max: 1},
	{path: "net/ipv4/conf/lo/rp_filter", perm: 0o644, value: "0", numbers: 1, max: 2},
	{path: "net/ipv4/icmp_echo_ignore_all", perm: 0o644, value: "0", numbers: 1, max: 1},
	{path: "net/ipv4/ip_default_ttl", perm: 0o644, value: "64", numbers: 1, min: 1, max: 255},
	{path: "net/ipv4/ip_forward", perm: 0o644, value: "0", numbers: 1, max: 1},
	{path: "net/ipv4/ip_local_port_range", perm: 0o644, value: "32768\t60999", numbers: 2, min: 1, max: 65535},
	{path: "net/ipv4/ip_local_reserved_ports", perm: 0o644, value: ""},
	{path: "net/ipv4/ip_nonlocal_bind", perm: 0o644, value: "0", numbers: 1, max: 1},
	{path: "net/ipv4/ip_unprivileged_port_start", perm: 0o644, value: "1024", numbers: 1, max: 65535},
	{path: "net/ipv4/ping_group_range", perm: 0o644, value: "1\t0", numbers: 2, max: math.MaxUint32},
	{path: "net/ipv4/tcp_allowed_congestion_control", perm: 0o644, value: "reno cubic"},
	{path: "net/ipv4/tcp_available_congestion_control", perm: 0o444, value: "reno cubic"},
	{path: "net/ipv4/tcp_congestion_control", perm: 0o644, value: "cubic"},
	{path: "net/ipv4/tcp_ecn", perm: 0o644, value: "2", numbers: 1, max: 2},
	{path: "net/ipv4/tcp_fastopen", perm: 0o644, value: "1", numbers: 1, max: maxInt},
	{path: "net/ipv4/tcp_fin_timeout", perm: 0o644, value: "60", numbers: 1, max: maxInt},
	{path: "net/ipv4/tcp_keepalive_intvl", perm: 0o644, value: "75", numbers: 1, max: maxInt},
	{path: "net/ipv4/tcp_keepalive_probes", perm: 0o644, value: "9", numbers: 1, max: 255},
	{path: "net/ipv4/tcp_keepalive_time", perm: 0o644, value: "7200", numbers: 1, max: maxInt},
	{path: "net/ipv4/tcp_max_syn_backlog", perm: 0o644, value: "4096", numbers: 1, max: maxInt},
	{path: "net/ipv4/tcp_max_tw_buckets", perm: 0o644, value: "131072", numbers: 1, max: maxInt},
	{path: "net/ipv4/tcp_mem", perm: 0o644, value: "287823\t383765\t575646", numbers: 3, max: maxLong},
	{path: "net/ipv4/tcp_moderate_rcvbuf", perm: 0o644, value: "1", numbers: 1, max: 1},
	{path: "net/ipv4/tcp_no_metrics_save", perm: 0o644, value: "0", numbers: 1, max: 1},
	{path: "net/ipv4/tcp_retries1", perm: 0o644, value: "3", numbers: 1, max: 255},
	{path: "net/ipv4/tcp_retries2", perm: 0o644, value: "15", numbers: 1, max: 255},
	{path: "net/ipv4/tcp_rfc1337", perm: 0o644, value: "0", numbers: 1, max: 1},
	{path: "net/ipv4/tcp_rmem", perm: 0o644, value: "4096\t131072\t6291456", numbers: 3, min: 1, max: maxInt},
	{path: "net/ipv4/tcp_sack", perm: 0o644, value: "1", numbers: 1, max: 1},
	{path: "net/ipv4/tcp_slow_start_after_idle", perm: 0o644, value: "1", numbers: 1, max: 1},
	{path: "net/ipv4/tcp_syn_retries", perm: 0o644, value: "6", numbers: 1, min: 1, max: 127},
	{path: "net/ipv4/tcp_synack_retries", perm: 0o644, value: "5", numbers: 1, max: 255},
	{path: "net/ipv4/tcp_syncookies", perm: 0o644, value: "1", numbers: 1, max: 2},
	{path: "net/ipv4/tcp_timestamps", perm: 0o644, value: "1", numbers: 1, max: 2},
	{path: "net/ipv4/tcp_tw_reuse", perm: 0o644, value: "2", numbers: 1, max: 2},
	{path: "net/ipv4/tcp_window_scaling", perm: 0o644, value: "1", numbers: 1, max: 1},
	{path: "net/ipv4/tcp_wmem", perm: 0o644, value: "4096\t16384\t4194304", numbers: 3, min: 1, max: maxInt},
	{path: "net/ipv4/udp_mem", perm: 0o644, value: "575643\t767527\t1151286", numbers: 3, max: maxLong},
	{path: "net/ipv6/bindv6only", perm: 0o644, value: "0", numbers: 1, max: 1},
	{path: "net/ipv6/conf/all/disable_ipv6", perm: 0o644, value: "0", numbers: 1, max: 1},
	{path: "net/ipv6/conf/all/forwarding", perm: 0o644, value: "0", numbers: 1, max: 1},
	{path: "net/ipv6/conf/default/disable_ipv6", perm: 0o644, value: "0", numbers: 1, max: 1},
	{path: "net/ipv6/conf/default/forwarding", perm: 0o644, value: "0", numbers: 1, max: 1},
	{path: "net/ipv6/conf/lo/disable_ipv6", perm: 0o644, value: "0", numbers: 1, max: 1},
	{path: "net/unix/max_dgram_qlen", perm: 0o644, value: "512", numbers: 1, max: maxInt},

	{path: "user/max_cgroup_namespaces", perm: 0o644, value: "96365", numbers: 1, max: maxInt},
	{path: "user/max_inotify_instances", perm: 0o644, value: "128", numbers: 1, max: maxInt},
	{path: "user/max_inotify_watches", perm: 0o644, value: "524288", numbers: 1, max: maxInt},
	{path: "user/max_ipc_namespaces", perm: 0o644, value: "96365", numbers: 1, max: maxInt},
	{path: "user/max_mnt_namespaces", perm: 0o644, value: "96365", numbers: 1, max: maxInt},
	{path: "user/max_net_namespaces", perm: 0o644, value: "96365", numbers: 1, max: maxInt},
	{path: "user/max_pid_namespaces", perm: 0o644, value: "96365", numbers: 1, max: maxInt},
	{path: "user/max_time_namespaces", perm: 0o644, value: "96365", numbers: 1, max: maxInt},
	{path: "user/max_user_namespaces", perm: 0o644, value: "0", numbers: 1, max: maxInt},
	{path: "user/max_uts_namespaces", perm: 0o644, value: "96365", numbers: 1, max: maxInt},

	{path: "vm/admin_reserve_kbytes", perm: 0o644, value: "8192", numbers: 1, max: maxLong},
	{path: "vm/compact_memory", perm: 0o200, value: "0", numbers: 1, min: 1, max: 1},
	{path: "vm/dirty_background_bytes", perm: 0o644, value: "0", numbers: 1, max: maxLong},
	{path: "vm/dirty_background_ratio", perm: 0o644, value: "10", numbers: 1, max: 100},
	{path: "vm/dirty_bytes", perm: 0o644, value: "0", numbers: 1, max: maxLong},
	{path: "vm/dirty_expire_centisecs", perm: 0o644, value: "3000", numbers: 1, max: maxInt},
	{path: "vm/dirty_ratio", perm: 0o644, value: "20", numbers: 1, max: 100},
	{path: "vm/dirty_writeback_centisecs", perm: 0o644, value: "500", numbers: 1, max: maxInt},
	{path: "vm/drop_caches", perm: 0o200, value: "0", numbers: 1, min: 1, max: 4, set: dropCaches},
	{path: "vm/hugetlb_shm_group", perm: 0o644, value: "0", numbers: 1, max: maxInt},
	{path: "vm/laptop_mode", perm: 0o644, value: "0", numbers: 1, max: maxInt},
	{path: "vm/legacy_va_layout", perm: 0o644, value: "0", numbers: 1, max: 1},
	{path: "vm/max_map_count", perm: 0o644, value: "65530", numbers: 1, max: maxInt},
	{path: "vm/memfd_noexec", perm: 0o644, value: "0", numbers: 1, max: 2},
	{path: "vm/min_free_kbytes", perm: 0o644, value: "67584", numbers: 1, max: maxInt},
	{path: "vm/mmap_min_addr", perm: 0o644, value: "65536", numbers: 1, max: maxLong},
	{path: "vm/mmap_rnd_bits", perm: 0o600, value: "28", numbers: 1, min: 28, max: 32},
	{path: "vm/nr_hugepages", perm: 0o644, value: "0", numbers: 1, max: 0},
	{path: "vm/nr_overcommit_hugepages", perm: 0o644, value: "0", numbers: 1, max: maxLong},
	{path: "vm/oom_dump_tasks", perm: 0o644, value: "1", numbers: 1, max: 1},
	{path: "vm/oom_kill_allocating_task", perm: 0o644, value: "0", numbers: 1, max: 1},
	{path: "vm/overcommit_kbytes", perm: 0o644, value: "0", numbers: 1, max: maxLong},
	{path: "vm/overcommit_memory", perm: 0o644, value: "0", numbers: 1, max: 2},
	{path: "vm/overcommit_ratio", perm: 0o644, value: "50", numbers: 1, max: maxInt},
	{path: "vm/page-cluster", perm: 0o644, value: "3", numbers: 1, max: 31},
	{path: "vm/panic_on_oom", perm: 0o644, value: "0", numbers: 1, max: 2},
	{path: "vm/stat_interval", perm: 0o644, value: "1", numbers: 1, max: maxInt},
	{path: "vm/swappiness", perm: 0o644, value: "60", numbers: 1, max: 200},
	{path: "vm/unprivileged_userfaultfd", perm: 0o644, value: "0", numbers: 1, max: 1},
	{path: "vm/user_reserve_kbytes", perm: 0o644, value: "131072", numbers: 1, max: maxLong},
	{path: "vm/vfs_cache_pressure", perm: 0o644, value: "100", numbers: 1, max: maxInt},
	{path: "vm/zone_reclaim_mode", perm: 0o644, value: "0", numbers: 1, max: maxInt},
}

// uts returns the caller's UTS namespace, for the Sentry the container's.
func (in *instance) uts(c vfs.Caller) *kernel.UTSNamespace {
	if t, ok := c.(*kernel.Task); ok {
		if u := t.UTS(); u != nil {
			return u
		}
	}
	return in.container.UTS()
}

// maxUTSName is __NEW_UTS_LEN.
const maxUTSName = 64

func hostName(in *instance, c vfs.Caller) string {
	host, _ := in.uts(c).Names()
	return host
}

func domainName(in *instance, c vfs.Caller) string {
	_, domain := in.uts(c).Names()
	return domain
}

func setHostName(in *instance, c vfs.Caller, s string) error {
	if len(s) > maxUTSName {
		s = s[:maxUTSName] // proc_dostring cuts
	}
	in.uts(c).SetHost(s)
	return nil
}

func setDomainName(in *instance, c vfs.Caller, s string) error {
	if len(s) > maxUTSName {
		s = s[:maxUTSName]
	}
	in.uts(c).SetDomain(s)
	return nil
}

func lastPID(in *instance, _ vfs.Caller) string { return fmt.Sprint(in.ns.Last()) }

func dropCaches(*instance, vfs.Caller, string) error {
	vfs.DropCaches()
	return nil
}
