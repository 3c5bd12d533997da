package proc

import (
	"bytes"
	"fmt"

	"golang.org/x/sys/unix"

	"runsc/sentry/fs/pseudo"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// memory is what the container may use and uses, in bytes.
type memory struct {
	total, free, anon, shmem, cache uint64
}

// memory returns the figures within the container's limit; without one, within
// the host's memory.
func (in *instance) memory() memory {
	var m memory
	var si unix.Sysinfo_t
	if err := unix.Sysinfo(&si); err == nil {
		unit := uint64(max(si.Unit, 1))
		m.total = uint64(si.Totalram) * unit
		m.free = m.total
	}
	a := in.container.Account()
	if a == nil {
		return m
	}
	m.anon, m.shmem, m.cache = a.Used(mem.Anonymous), a.Used(mem.Tmpfs), a.Used(mem.PageCache)
	if l := a.Limit(); l != 0 && l < m.total {
		m.total = l
	}
	// As sysinfo(2): what others of the host use is not shown.
	m.free = m.total - min(m.total, a.Total())
	return m
}

func (in *instance) meminfo(_ vfs.Caller, b *bytes.Buffer) error {
	m := in.memory()
	line := func(name string, bytes uint64) { fmt.Fprintf(b, "%-15s %8d kB\n", name+":", bytes/1024) }
	line("MemTotal", m.total)
	line("MemFree", m.free)
	line("MemAvailable", min(m.free+m.cache, m.total))
	line("Buffers", 0)
	line("Cached", m.cache+m.shmem)
	line("SwapCached", 0)
	line("Active", m.anon+m.cache)
	line("Inactive", m.shmem)
	line("Active(anon)", m.anon)
	line("Inactive(anon)", m.shmem)
	line("Active(file)", m.cache)
	line("Inactive(file)", 0)
	line("Unevictable", 0)
	line("Mlocked", 0)
	line("SwapTotal", 0)
	line("SwapFree", 0)
	line("Dirty", 0)
	line("Writeback", 0)
	line("AnonPages", m.anon)
	line("Mapped", m.cache)
	line("Shmem", m.shmem)
	line("KReclaimable", 0)
	line("Slab", 0)
	line("SReclaimable", 0)
	line("SUnreclaim", 0)
	line("KernelStack", 0)
	line("PageTables", 0)
	line("NFS_Unstable", 0)
	line("Bounce", 0)
	line("WritebackTmp", 0)
	line("CommitLimit", in.container.Account().CommitLimit())
	line("Committed_AS", in.policy().Committed()+m.shmem)
	line("VmallocTotal", 1<<45-1024)
	line("VmallocUsed", 0)
	line("VmallocChunk", 0)
	line("Percpu", 0)
	line("AnonHugePages", 0)
	line("ShmemHugePages", 0)
	line("ShmemPmdMapped", 0)
	line("FileHugePages", 0)
	line("FilePmdMapped", 0)
	for _, name := range []string{"HugePages_Total", "HugePages_Free", "HugePages_Rsvd", "HugePages_Surp"} {
		fmt.Fprintf(b, "%-15s %8d\n", name+":", 0)
	}
	line("Hugepagesize", 2<<20)
	line("Hugetlb", 0)
	return nil
}

func (in *instance) vmstat(_ vfs.Caller, b *bytes.Buffer) error {
	m := in.memory()
	minor, major := int64(0), int64(0)
	for _, tg := range in.ns.ThreadGroups() {
		mi, ma := tg.Faults()
		minor, major = minor+mi, major+ma
	}
	const page = 4096
	for _, l := range []struct {
		name string
		n    uint64
	}{
		{"nr_free_pages", m.free / page}, {"nr_inactive_anon", m.shmem / page}, {"nr_active_anon", m.anon / page},
		{"nr_inactive_file", 0}, {"nr_active_file", m.cache / page}, {"nr_unevictable", 0}, {"nr_mlock", 0},
		{"nr_anon_pages", m.anon / page}, {"nr_mapped", m.cache / page}, {"nr_file_pages", (m.cache + m.shmem) / page},
		{"nr_dirty", 0}, {"nr_writeback", 0}, {"nr_shmem", m.shmem / page}, {"nr_slab_reclaimable", 0},
		{"nr_slab_unreclaimable", 0}, {"nr_page_table_pages", 0}, {"nr_kernel_stack", 0},
		{"pgpgin", 0}, {"pgpgout", 0}, {"pswpin", 0}, {"pswpout", 0}, {"pgalloc_normal", 0}, {"pgfree", 0},
		{"pgfault", uint64(minor + major)}, {"pgmajfault", uint64(major)}, {"oom_kill", in.container.OOMKills()},
	} {
		fmt.Fprintf(b, "%s %d\n", l.name, l.n)
	}
	return nil
}

// buddyinfo has all free memory in one zone, in the largest blocks.
func (in *instance) buddyinfo(_ vfs.Caller, b *bytes.Buffer) error {
	const orders = 11
	pages := in.memory().free / 4096
	fmt.Fprintf(b, "Node 0, zone %8s ", "Normal")
	for o := range orders {
		n := pages >> o & 1
		if o == orders-1 {
			n = pages >> o
		}
		fmt.Fprintf(b, "%6d ", n)
	}
	b.WriteByte('\n')
	return nil
}

// noLog is /proc/kmsg: there is no log of a kernel that guests may see
// (check_syslog_permissions).
type noLog struct{}

// Info implements pseudo.Node.
func (noLog) Info(vfs.Caller) (pseudo.Info, error) {
	return pseudo.Info{Mode: unix.S_IFREG | 0o400}, nil
}

// Open implements pseudo.Opener.
func (noLog) Open(vfs.Caller, uint32) (vfs.FileOps, error) { return nil, unix.EPERM }
