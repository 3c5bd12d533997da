package sys

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"runsc/sentry/fs/pseudo"
	"runsc/sentry/vfs"
)

// Options are the settings of a mount.
type Options struct {
	// NumCPUs is what the guest sees.
	NumCPUs int
	// MemTotal returns the bytes of memory that the container may use.
	MemTotal func() uint64
	Source   string
}

// instance is one sys mount.
type instance struct{ o Options }

// New returns the file system.
func New(o Options) *pseudo.FS {
	in := &instance{o}
	return pseudo.New(pseudo.Options{
		Type: "sysfs", Magic: unix.SYSFS_MAGIC, Source: o.Source, BlockSize: 4096,
		Root:        pseudo.TreeDir[*instance]{Owner: in, Tree: tree, Perm: 0o755},
		CreateError: unix.EACCES, MkdirError: unix.EPERM,
	})
}

type entry = pseudo.TreeEntry[*instance]

// tree has everything but the numbered directories of CPUs.
var tree = pseudo.Tree[*instance]{
	emptyDir("block"),
	emptyDir("bus/cpu"),
	emptyDir("bus/pci/devices"),
	emptyDir("class/block"),
	emptyDir("class/hwmon"),
	emptyDir("class/mem"),
	link("class/net/lo", "../../devices/virtual/net/lo"),
	emptyDir("class/power_supply"),
	emptyDir("class/thermal"),
	emptyDir("class/tty"),
	emptyDir("dev/block"),
	emptyDir("dev/char"),
	{Path: "devices/system/cpu", Type: unix.DT_DIR, Make: func(in *instance) pseudo.Node { return cpusDir{in} }},
	file("devices/system/node/has_cpu", 0o444, text("0\n")),
	file("devices/system/node/has_memory", 0o444, text("0\n")),
	file("devices/system/node/has_normal_memory", 0o444, text("0\n")),
	file("devices/system/node/node0/cpulist", 0o444, (*instance).cpuListFile),
	file("devices/system/node/node0/cpumap", 0o444, (*instance).cpuMapFile),
	file("devices/system/node/node0/distance", 0o444, text("10\n")),
	file("devices/system/node/node0/meminfo", 0o444, (*instance).nodeMeminfo),
	file("devices/system/node/node0/numastat", 0o444, text("numa_hit 0\nnuma_miss 0\nnuma_foreign 0\ninterleave_hit 0\nlocal_node 0\nother_node 0\n")),
	file("devices/system/node/online", 0o444, text("0\n")),
	file("devices/system/node/possible", 0o444, text("0\n")),
	file("devices/virtual/net/lo/addr_len", 0o444, text("6\n")),
	file("devices/virtual/net/lo/address", 0o444, text("00:00:00:00:00:00\n")),
	file("devices/virtual/net/lo/broadcast", 0o444, text("00:00:00:00:00:00\n")),
	file("devices/virtual/net/lo/carrier", 0o444, text("1\n")),
	file("devices/virtual/net/lo/flags", 0o444, text("0x9\n")),
	file("devices/virtual/net/lo/ifindex", 0o444, text("1\n")),
	file("devices/virtual/net/lo/iflink", 0o444, text("1\n")),
	file("devices/virtual/net/lo/mtu", 0o444, text("65536\n")),
	file("devices/virtual/net/lo/operstate", 0o444, text("unknown\n")),
	file("devices/virtual/net/lo/statistics/rx_bytes", 0o444, text("0\n")),
	file("devices/virtual/net/lo/statistics/rx_packets", 0o444, text("0\n")),
	file("devices/virtual/net/lo/statistics/tx_bytes", 0o444, text("0\n")),
	file("devices/virtual/net/lo/statistics/tx_packets", 0o444, text("0\n")),
	file("devices/virtual/net/lo/tx_queue_len", 0o444, text("1000\n")),
	file("devices/virtual/net/lo/type", 0o444, text("772\n")),
	emptyDir("firmware"),
	emptyDir("fs/cgroup"),
	emptyDir("fs/fuse/connections"),
	emptyDir("hypervisor"),
	file("kernel/mm/transparent_hugepage/defrag", 0o444, text("always defer defer+madvise [madvise] never\n")),
	file("kernel/mm/transparent_hugepage/enabled", 0o444, text("always madvise [never]\n")),
	file("kernel/mm/transparent_hugepage/hpage_pmd_size", 0o444, text("2097152\n")),
	file("kernel/mm/transparent_hugepage/khugepaged/defrag", 0o444, text("0\n")),
	file("kernel/mm/transparent_hugepage/shmem_enabled", 0o444, text("always within_size advise [never] deny force\n")),
	file("kernel/mm/transparent_hugepage/use_zero_page", 0o444, text("1\n")),
	emptyDir("kernel/debug"),
	emptyDir("kernel/security"),
	emptyDir("kernel/tracing"),
	file("kernel/uevent_seqnum", 0o444, text("0\n")),
	emptyDir("module"),
	file("power/state", 0o444, text("\n")),
}

type generator = func(*instance, vfs.Caller, *bytes.Buffer) error

func file(path string, perm uint32, gen generator) entry {
	return entry{Path: path, Type: unix.DT_REG, Make: func(in *instance) pseudo.Node {
		return pseudo.File{Perm: perm, Gen: func(c vfs.Caller, b *bytes.Buffer) error { return gen(in, c, b) }}
	}}
}

func link(path, target string) entry {
	return entry{Path: path, Type: unix.DT_LNK, Make: func(*instance) pseudo.Node {
		return pseudo.Symlink{Target: func(vfs.Caller) (string, error) { return target, nil }}
	}}
}

func emptyDir(path string) entry { return entry{Path: path, Type: unix.DT_DIR} }

func text(s string) generator {
	return func(_ *instance, _ vfs.Caller, b *bytes.Buffer) error {
		b.WriteString(s)
		return nil
	}
}

func (in *instance) cpuListFile(_ vfs.Caller, b *bytes.Buffer) error {
	b.WriteString(cpuList(in.o.NumCPUs) + "\n")
	return nil
}

func (in *instance) cpuMapFile(_ vfs.Caller, b *bytes.Buffer) error {
	b.WriteString(cpuMap(in.o.NumCPUs, func(int) bool { return true }) + "\n")
	return nil
}

func (in *instance) nodeMeminfo(_ vfs.Caller, b *bytes.Buffer) error {
	total := uint64(0)
	if in.o.MemTotal != nil {
		total = in.o.MemTotal()
	}
	fmt.Fprintf(b, "Node 0 MemTotal:       %8d kB\nNode 0 MemFree:        %8d kB\nNode 0 MemUsed:        %8d kB\n", total/1024, total/1024, 0)
	return nil
}

// cpuList shows CPUs 0 to n-1.
func cpuList(n int) string {
	if n <= 1 {
		return "0"
	}
	return fmt.Sprintf("0-%d", n-1)
}

// cpuMap shows a set of n CPUs as words of 32 bits in hexadecimal.
func cpuMap(n int, has func(int) bool) string {
	var words []string
	for hi := (n - 1) / 32; hi >= 0; hi-- {
		w := uint32(0)
		for i := 0; i < 32; i++ {
			if cpu := hi*32 + i; cpu < n && has(cpu) {
				w |= 1 << i
			}
		}
		if bits := n - hi*32; len(words) == 0 && bits < 32 {
			words = append(words, fmt.Sprintf("%0*x", (bits+3)/4, w))
		} else {
			words = append(words, fmt.Sprintf("%08x", w))
		}
	}
	return strings.Join(words, ",")
}

// add puts constant files into a directory.
func add(dir string, files ...[2]string) {
	for _, f := range files {
		tree = append(tree, file(dir+"/"+f[0], 0o444, text(f[1]+"\n")))
	}
}

func init() {
	tree = append(tree, emptyDir("bus/cpu/devices"), emptyDir("bus/memory/devices"), emptyDir("bus/node/devices"),
		emptyDir("bus/platform/devices"), emptyDir("bus/virtio/devices"), emptyDir("bus/usb/devices"), emptyDir("class/misc"),
		emptyDir("class/bdi"), emptyDir("class/dmi"), emptyDir("class/input"), emptyDir("class/drm"), emptyDir("devices/virtual/block"))
	huge := [][2]string{{"free_hugepages", "0"}, {"nr_hugepages", "0"}, {"surplus_hugepages", "0"}}
	add("devices/system/node/node0/hugepages/hugepages-2048kB", huge...)
	add("kernel/mm/hugepages/hugepages-2048kB", huge...)
	add("kernel/mm/hugepages/hugepages-2048kB", [2]string{"nr_hugepages_mempolicy", "0"}, [2]string{"nr_overcommit_hugepages", "0"}, [2]string{"resv_hugepages", "0"})
	add("kernel/mm/ksm", [2]string{"pages_shared", "0"}, [2]string{"pages_sharing", "0"}, [2]string{"run", "0"})
	add("kernel/mm/transparent_hugepage/khugepaged", [2]string{"alloc_sleep_millisecs", "60000"}, [2]string{"full_scans", "0"},
		[2]string{"max_ptes_none", "511"}, [2]string{"max_ptes_shared", "256"}, [2]string{"max_ptes_swap", "64"}, [2]string{"pages_collapsed", "0"},
		[2]string{"pages_to_scan", "4096"}, [2]string{"scan_sleep_millisecs", "10000"})
	add("kernel", [2]string{"address_bits", "64"}, [2]string{"cpu_byteorder", "little"}, [2]string{"fscaps", "1"}, [2]string{"profiling", "0"})
	add("devices/system/node", [2]string{"has_generic_initiator", ""})
	add("devices/virtual/net/lo", [2]string{"addr_assign_type", "0"}, [2]string{"carrier_changes", "0"}, [2]string{"carrier_down_count", "0"},
		[2]string{"carrier_up_count", "0"}, [2]string{"dev_id", "0x0"}, [2]string{"dev_port", "0"}, [2]string{"dormant", "0"},
		[2]string{"gro_flush_timeout", "0"}, [2]string{"ifalias", ""}, [2]string{"link_mode", "0"}, [2]string{"netdev_group", "0"},
		[2]string{"proto_down", "0"}, [2]string{"testing", "0"}, [2]string{"uevent", "INTERFACE=lo\nIFINDEX=1"})
	for _, name := range []string{"collisions", "multicast", "rx_compressed", "rx_crc_errors", "rx_dropped", "rx_errors", "rx_fifo_errors",
		"rx_frame_errors", "rx_length_errors", "rx_missed_errors", "rx_nohandler", "rx_over_errors", "tx_aborted_errors",
		"tx_carrier_errors", "tx_compressed", "tx_dropped", "tx_errors", "tx_fifo_errors", "tx_heartbeat_errors", "tx_window_errors"} {
		add("devices/virtual/net/lo/statistics", [2]string{name, "0"})
	}
	tree = append(tree, link("devices/virtual/net/lo/subsystem", "../../../../class/net"))
	for _, d := range []struct {
		name  string
		minor int
		mode  string
	}{{"null", 3, "0666"}, {"zero", 5, "0666"}, {"full", 7, "0666"}, {"random", 8, "0666"}, {"urandom", 9, "0666"}} {
		dir := "devices/virtual/mem/" + d.name
		add(dir, [2]string{"dev", fmt.Sprintf("1:%d", d.minor)}, [2]string{"uevent", fmt.Sprintf("MAJOR=1\nMINOR=%d\nDEVNAME=%s\nDEVMODE=%s", d.minor, d.name, d.mode)})
		tree = append(tree, link(dir+"/subsystem", "../../../../class/mem"), link("class/mem/"+d.name, "../../"+dir),
			link(fmt.Sprintf("dev/char/1:%d", d.minor), "../../"+dir))
	}
	// A directory that has something in it needs no row of its own, and the
	// rows of a directory must be together.
	slices.SortStableFunc(tree, func(a, b entry) int {
		return strings.Compare(strings.ReplaceAll(a.Path, "/", "\x00"), strings.ReplaceAll(b.Path, "/", "\x00"))
	})
	tree = slices.DeleteFunc(tree, func(e entry) bool {
		return e.Make == nil && slices.ContainsFunc(tree, func(o entry) bool { return strings.HasPrefix(o.Path, e.Path+"/") })
	})
}
