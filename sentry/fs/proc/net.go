package proc

import (
	"strings"

	"golang.org/x/sys/unix"

	"runsc/sentry/fs/pseudo"
	"runsc/sentry/vfs"
)

// netFiles has the files of /proc/PID/net: a network with a loopback device
// and nothing else.
var netFiles = []struct{ name, content string }{
	{"arp", "IP address       HW type     Flags       HW address            Mask     Device\n"},
	{"dev", "Inter-|   Receive                                                |  Transmit\n" +
		" face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n" +
		"    lo:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0\n"},
	{"dev_mcast", ""},
	{"fib_trie", ""},
	{"fib_triestat", ""},
	{"icmp", "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n"},
	{"if_inet6", "00000000000000000000000000000001 01 80 10 80       lo\n"},
	{"igmp", "Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter\n"},
	{"ipv6_route", ""},
	{"icmp6", "  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n"},
	{"igmp6", ""},
	{"mcfilter", ""},
	{"mcfilter6", ""},
	{"netlink", "sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode\n"},
	{"netstat", "TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 0 0 0\nIpExt: InOctets OutOctets\nIpExt: 0 0\n"},
	{"packet", "sk               RefCnt Type Proto  Iface R Rmem   User   Inode\n"},
	{"protocols", "protocol  size sockets  memory press maxhdr  slab module     cl co di ac io in de sh ss gs se re bi br ha uh gp em\n"},
	{"psched", "000003e8 00000040 000f4240 3b9aca00\n"},
	{"ptype", "Type Device      Function\n"},
	{"raw", "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n"},
	{"raw6", "  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n"},
	{"route", "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT                                                       \n"},
	{"snmp", "Ip: Forwarding DefaultTTL InReceives InHdrErrors InAddrErrors ForwDatagrams InUnknownProtos InDiscards InDelivers OutRequests OutDiscards OutNoRoutes ReasmTimeout ReasmReqds ReasmOKs ReasmFails FragOKs FragFails FragCreates\n" +
		"Ip: 2 64 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n" +
		"Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails EstabResets CurrEstab InSegs OutSegs RetransSegs InErrs OutRsts InCsumErrors\n" +
		"Tcp: 1 200 120000 -1 0 0 0 0 0 0 0 0 0 0 0\n" +
		"Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors\n" +
		"Udp: 0 0 0 0 0 0 0 0 0\n"},
	{"sockstat", "sockets: used 0\nTCP: inuse 0 orphan 0 tw 0 alloc 0 mem 0\nUDP: inuse 0 mem 0\nUDPLITE: inuse 0\nRAW: inuse 0\nFRAG: inuse 0 memory 0\n"},
	{"sockstat6", "TCP6: inuse 0\nUDP6: inuse 0\nUDPLITE6: inuse 0\nRAW6: inuse 0\nFRAG6: inuse 0 memory 0\n"},
	{"snmp6", ""},
	{"softnet_stat", strings.Repeat("00000000 ", 12) + "00000000 00000000 00000000\n"},
	{"udplite", "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops             \n"},
	{"tcp", "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode                                                     \n"},
	{"tcp6", "  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"},
	{"udp", "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops             \n"},
	{"udp6", "  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n"},
	{"unix", "Num       RefCount Protocol Flags    Type St Inode Path\n"},
	{"wireless", "Inter-| sta-|   Quality        |   Discarded packets               | Missed | WE\n face | tus | link level noise |  nwid  crypt   frag  retry   misc | beacon | 22\n"},
}

// netDir is /proc/PID/net.
type netDir process

// Info implements pseudo.Node.
func (d netDir) Info(vfs.Caller) (pseudo.Info, error) {
	return pseudo.Info{Mode: unix.S_IFDIR | 0o555, Nlink: 2}, nil
}

// Lookup implements pseudo.Dir.
func (d netDir) Lookup(_ vfs.Caller, name string) (pseudo.Node, error) {
	for _, f := range netFiles {
		if f.name == name {
			return pseudo.Text{Perm: 0o444, Content: f.content}, nil
		}
	}
	return nil, unix.ENOENT
}

// Each implements pseudo.Dir.
func (d netDir) Each(_ vfs.Caller, pos int64, emit func(string, uint8, int64) bool) error {
	for i := max(pos, 0); i < int64(len(netFiles)); i++ {
		if !emit(netFiles[i].name, unix.DT_REG, i+1) {
			return nil
		}
	}
	return nil
}
