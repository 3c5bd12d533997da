package vfs

import (
	"sort"
	"sync"

	"golang.org/x/sys/unix"
)

// DeviceOpener opens a device node: d is the node, flags are open(2)'s. Like
// FifoOpener it runs without locks held and may wait with c.Block.
type DeviceOpener func(c Caller, d *Dentry, flags uint32) (FileOps, error)

// FifoOpener opens an end of the fifo that inode is. What it keeps per fifo it
// keys by inode, which lives while an end is open.
type FifoOpener func(c Caller, inode Inode, flags uint32) (FileOps, error)

// FSType is a file system type for mount(2).
type FSType struct {
	Name string
	// NoDev marks types that need no block device, for /proc/filesystems.
	NoDev bool
	// New makes a file system for mount(source, …, options).
	New func(c Caller, source, options string, flags MountFlags) (Filesystem, error)
	// Check looks at one option, "key" or "key=value", as fsconfig(2) gives
	// them: whether there is such a key, and EINVAL for a bad value. Without
	// it options are looked at by New alone.
	Check func(option string) (known bool, err error)
	// Commas is set if options may have commas, written as "\\,".
	Commas bool
}

type deviceKey struct {
	kind         uint32 // unix.S_IFCHR or unix.S_IFBLK
	major, minor uint32
}

// registry joins vfs with packages above it. It holds code, no state: nothing
// of it is in a checkpoint.
var registry struct {
	mu      sync.RWMutex
	fifo    FifoOpener
	devices map[deviceKey]DeviceOpener
	types   map[string]FSType
}

// AnyMinor registers a device for every minor number of its major.
const AnyMinor = ^uint32(0)

// RegisterFifo sets what opens fifos.
func RegisterFifo(open FifoOpener) {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	registry.fifo = open
}

// RegisterDevice sets what opens device nodes of a kind (unix.S_IFCHR or
// unix.S_IFBLK) with these numbers.
func RegisterDevice(kind, major, minor uint32, open DeviceOpener) {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	if registry.devices == nil {
		registry.devices = make(map[deviceKey]DeviceOpener)
	}
	registry.devices[deviceKey{kind, major, minor}] = open
}

// RegisterFSType makes a file system type known by its name.
func RegisterFSType(t FSType) {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	if registry.types == nil {
		registry.types = make(map[string]FSType)
	}
	registry.types[t.Name] = t
}

// LookupFSType finds a file system type; ENODEV if there is none.
func LookupFSType(name string) (FSType, error) {
	registry.mu.RLock()
	defer registry.mu.RUnlock()
	t, ok := registry.types[name]
	if !ok {
		return t, unix.ENODEV
	}
	return t, nil
}

// FSTypes returns all file system types by name.
func FSTypes() []FSType {
	registry.mu.RLock()
	defer registry.mu.RUnlock()
	list := make([]FSType, 0, len(registry.types))
	for _, t := range registry.types {
		list = append(list, t)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	return list
}

// openSpecial opens what is not a file system's own business: fifos, sockets
// and device nodes.
func openSpecial(c Caller, d *Dentry, st *Stat, flags uint32) (FileOps, error) {
	if s, ok := d.inode.(SpecialOpener); ok {
		return s.OpenSpecial(c, d, flags)
	}
	switch kind := st.Mode & unix.S_IFMT; kind {
	case unix.S_IFIFO:
		registry.mu.RLock()
		open := registry.fifo
		registry.mu.RUnlock()
		if open != nil {
			return open(c, d.inode, flags)
		}
	case unix.S_IFCHR, unix.S_IFBLK:
		key := deviceKey{kind, unix.Major(st.Rdev), unix.Minor(st.Rdev)}
		registry.mu.RLock()
		open := registry.devices[key]
		if open == nil {
			key.minor = AnyMinor
			open = registry.devices[key]
		}
		registry.mu.RUnlock()
		if open != nil {
			return open(c, d, flags)
		}
	}
	return nil, unix.ENXIO
}
