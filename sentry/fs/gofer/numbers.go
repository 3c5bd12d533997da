package gofer

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// Policy says how host inode numbers become guest inode numbers.
type Policy uint8

const (
	// PolicyHash computes numbers with a keyed bijection; nothing is
	// remembered.
	PolicyHash Policy = iota
	// PolicyHost passes host numbers through.
	PolicyHost
	// PolicyMap remembers a sequence number for every file seen, as a
	// baseline to measure against.
	PolicyMap
)

// ParsePolicy parses the values of the key inode-policy.
func ParsePolicy(s string) (Policy, error) {
	switch s {
	case "", "hash":
		return PolicyHash, nil
	case "host":
		return PolicyHost, nil
	case "map":
		return PolicyMap, nil
	}
	return 0, fmt.Errorf("inode-policy %q is none of hash, host, map", s)
}

const (
	// inodeBits is the size of the numbers that the hash covers. Together
	// with hashedBit they fit the 53 bits of a JavaScript number.
	inodeBits = 52
	// hashedBit marks computed numbers; those of synthetic inodes count
	// from 1 below it and never come near mappedBit.
	hashedBit = uint64(1) << inodeBits
	// mappedBit marks, with hashedBit clear, the remembered numbers of host
	// files whose own number is too large for the hash.
	mappedBit = uint64(1) << (inodeBits - 1)
)

// Numbers translates host device and inode numbers to the guest's. It is
// shared by all host file systems of a sandbox, so that the same device is
// the same in all of them.
type Numbers struct {
	policy  Policy
	key     [32]byte
	nextDev func() uint64

	mu sync.RWMutex
	// mu guards:
	devices map[uint64]*device
}

// device is one host device.
type device struct {
	host  uint64
	guest uint64 // st_dev in the guest
	perm  perm

	// Numbers.mu guards:
	users int  // file systems whose root is on it
	kept  bool // guest is a number that an image had

	noACL atomic.Bool // the file system has no access control lists

	mu sync.Mutex
	// mu guards:
	byHost  map[uint64]uint64 // remembered numbers
	used    map[uint64]uint64 // host number by remembered number
	nextSeq uint64
}

// NewNumbers returns a translation with one secret key per host. nextDev
// allocates a device number for each host device.
func NewNumbers(policy Policy, key [32]byte, nextDev func() uint64) *Numbers {
	return &Numbers{policy: policy, key: key, nextDev: nextDev, devices: map[uint64]*device{}}
}

// device returns the record of a host device.
func (n *Numbers) device(host uint64) *device {
	n.mu.RLock()
	d := n.devices[host]
	n.mu.RUnlock()
	if d != nil {
		return d
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if d := n.devices[host]; d != nil {
		return d
	}
	d = &device{host: host, guest: n.nextDev(), perm: newPerm(&n.key, host, inodeBits/2)}
	n.devices[host] = d
	return d
}

// remembered returns how many numbers are kept in memory.
func (n *Numbers) remembered() int {
	n.mu.RLock()
	defer n.mu.RUnlock()
	sum := 0
	for _, d := range n.devices {
		d.mu.Lock()
		sum += len(d.byHost)
		d.mu.Unlock()
	}
	return sum
}

// inode returns the guest's number for a file that was looked up.
func (n *Numbers) inode(d *device, host uint64) uint64 {
	return n.number(d, host, true)
}

// dirent returns the number for a directory entry. It remembers nothing under
// PolicyHash: an entry with a large host number shows the number that its file
// will most likely get.
func (n *Numbers) dirent(d *device, host uint64) uint64 {
	return n.number(d, host, false)
}

func (n *Numbers) number(d *device, host uint64, lookedUp bool) uint64 {
	switch n.policy {
	case PolicyHost:
		return host
	case PolicyMap:
		return d.sequence(host)
	}
	if host < hashedBit {
		return hashedBit | d.perm.forward(host)
	}
	return d.mapped(host, lookedUp)
}

// mapped returns a number in [mappedBit, hashedBit) for a large host number,
// distinct for all files that were looked up.
func (d *device) mapped(host uint64, lookedUp bool) uint64 {
	first := d.fold(host)
	d.mu.Lock()
	defer d.mu.Unlock()
	if v, ok := d.byHost[host]; ok {
		return v
	}
	if !lookedUp {
		return first
	}
	v := first
	for {
		if _, taken := d.used[v]; !taken {
			break
		}
		v = mappedBit | (v+1)&(mappedBit-1)
	}
	if d.byHost == nil {
		d.byHost, d.used = map[uint64]uint64{}, map[uint64]uint64{}
	}
	d.byHost[host], d.used[v] = v, host
	return v
}

// fold hashes all 64 bits of a host number into [mappedBit, hashedBit).
func (d *device) fold(host uint64) uint64 {
	hi, lo := host>>(inodeBits/2), host&(1<<(inodeBits/2)-1)
	h := d.perm.round(feistelRounds, hi)
	return mappedBit | d.perm.round(feistelRounds+1, h>>8^lo)&(mappedBit-1)
}

// sequence returns the number of PolicyMap.
func (d *device) sequence(host uint64) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if v, ok := d.byHost[host]; ok {
		return v
	}
	if d.byHost == nil {
		d.byHost = map[uint64]uint64{}
	}
	d.nextSeq++
	d.byHost[host] = mappedBit | d.nextSeq
	return mappedBit | d.nextSeq
}
