package sock

import (
	"encoding/binary"
	"sync"

	"golang.org/x/sys/unix"

	"runsc/sentry/vfs"
)

const (
	// defaultBuf is net.core.rmem_default; maxBuf net.core.rmem_max.
	defaultBuf = 212992
	maxBuf     = 212992
	minSndBuf  = 4608
	minRcvBuf  = 2304
)

// Options are the options of level SOL_SOCKET that are plain values.
type Options struct {
	mu sync.Mutex `save:"none: not held at a stop"`
	// mu guards:
	flags              map[int32]bool `save:"rec"`
	sndBuf, rcvBuf     int32          `save:"rec"`
	sndTimeo, rcvTimeo int64          `save:"rec"` // ns, 0: none
	rcvLowat           int32          `save:"rec"`
	priority, mark     int32          `save:"rec"`
	linger             [2]int32       `save:"rec"`
}

// flagOptions are the options that are on or off.
var flagOptions = map[int32]bool{
	unix.SO_REUSEADDR: true, unix.SO_REUSEPORT: true, unix.SO_KEEPALIVE: true, unix.SO_BROADCAST: true,
	unix.SO_OOBINLINE: true, unix.SO_PASSCRED: true, unix.SO_TIMESTAMP: true, unix.SO_TIMESTAMPNS: true,
	unix.SO_DONTROUTE: true, unix.SO_DEBUG: true,
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{flags: make(map[int32]bool), sndBuf: defaultBuf, rcvBuf: defaultBuf, rcvLowat: 1}
}

// Flag tells whether an option is on.
func (o *Options) Flag(name int32) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.flags[name]
}

// SendBuffer and RecvBuffer are SO_SNDBUF and SO_RCVBUF.
func (o *Options) SendBuffer() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return int(o.sndBuf)
}

// RecvBuffer is SO_RCVBUF.
func (o *Options) RecvBuffer() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return int(o.rcvBuf)
}

// Timeouts are SO_SNDTIMEO and SO_RCVTIMEO in ns, 0 for none.
func (o *Options) Timeouts() (snd, rcv int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sndTimeo, o.rcvTimeo
}

// Inherit copies what an accepted socket takes from its listener.
func (o *Options) Inherit(from *Options) {
	from.mu.Lock()
	flags := make(map[int32]bool, len(from.flags))
	for k, v := range from.flags {
		flags[k] = v
	}
	snd, rcv := from.sndBuf, from.rcvBuf
	from.mu.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.flags, o.sndBuf, o.rcvBuf = flags, snd, rcv
}

// Get implements getsockopt(2) for SOL_SOCKET; ok is false for options that
// the family has to know.
func (o *Options) Get(s Socket, name int32) (value []byte, ok bool) {
	family, typ, protocol := s.Info()
	switch name {
	case unix.SO_TYPE:
		return int32Bytes(typ), true
	case unix.SO_DOMAIN:
		return int32Bytes(family), true
	case unix.SO_PROTOCOL:
		return int32Bytes(protocol), true
	case unix.SO_ERROR:
		return int32Bytes(int32(s.TakeError())), true
	case unix.SO_ACCEPTCONN:
		return boolBytes(s.Accepting()), true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if flagOptions[name] {
		return boolBytes(o.flags[name]), true
	}
	switch name {
	case unix.SO_SNDBUF:
		return int32Bytes(o.sndBuf), true
	case unix.SO_RCVBUF:
		return int32Bytes(o.rcvBuf), true
	case unix.SO_RCVLOWAT:
		return int32Bytes(o.rcvLowat), true
	case unix.SO_SNDLOWAT:
		return int32Bytes(1), true
	case unix.SO_PRIORITY:
		return int32Bytes(o.priority), true
	case unix.SO_MARK:
		return int32Bytes(o.mark), true
	case unix.SO_LINGER:
		return append(int32Bytes(o.linger[0]), int32Bytes(o.linger[1])...), true
	case unix.SO_SNDTIMEO:
		return timevalBytes(o.sndTimeo), true
	case unix.SO_RCVTIMEO:
		return timevalBytes(o.rcvTimeo), true
	}
	return nil, false
}

// Set implements setsockopt(2) for SOL_SOCKET; ok is false for options that
// the family has to know.
func (o *Options) Set(c vfs.Caller, name int32, value []byte) (ok bool, err error) {
	if name == unix.SO_SNDTIMEO || name == unix.SO_RCVTIMEO {
		return true, o.setTimeout(name, value)
	}
	if len(value) < 4 {
		return true, unix.EINVAL
	}
	v := int32(binary.LittleEndian.Uint32(value))
	o.mu.Lock()
	defer o.mu.Unlock()
	if flagOptions[name] {
		o.flags[name] = v != 0
		return true, nil
	}
	switch name {
	case unix.SO_TYPE, unix.SO_DOMAIN, unix.SO_PROTOCOL, unix.SO_ERROR, unix.SO_ACCEPTCONN, unix.SO_PEERCRED:
		return true, unix.ENOPROTOOPT // read only
	case unix.SO_SNDBUF, unix.SO_SNDBUFFORCE:
		if name == unix.SO_SNDBUFFORCE && !c.Cred().Has(unix.CAP_NET_ADMIN) {
			return true, unix.EPERM
		}
		o.sndBuf = max(min(max(v, 0), maxBuf)*2, minSndBuf)
	case unix.SO_RCVBUF, unix.SO_RCVBUFFORCE:
		if name == unix.SO_RCVBUFFORCE && !c.Cred().Has(unix.CAP_NET_ADMIN) {
			return true, unix.EPERM
		}
		o.rcvBuf = max(min(max(v, 0), maxBuf)*2, minRcvBuf)
	case unix.SO_RCVLOWAT:
		o.rcvLowat = max(v, 1)
	case unix.SO_PRIORITY:
		if (v < 0 || v > 6) && !c.Cred().Has(unix.CAP_NET_ADMIN) {
			return true, unix.EPERM
		}
		o.priority = v
	case unix.SO_MARK:
		if !c.Cred().Has(unix.CAP_NET_ADMIN) {
			return true, unix.EPERM
		}
		o.mark = v
	case unix.SO_LINGER:
		if len(value) < 8 {
			return true, unix.EINVAL
		}
		o.linger = [2]int32{v, int32(binary.LittleEndian.Uint32(value[4:]))}
	default:
		return false, nil
	}
	return true, nil
}

// setTimeout sets SO_SNDTIMEO or SO_RCVTIMEO (sock_set_timeout).
func (o *Options) setTimeout(name int32, value []byte) error {
	if len(value) < 16 {
		return unix.EINVAL
	}
	sec := int64(binary.LittleEndian.Uint64(value))
	usec := int64(binary.LittleEndian.Uint64(value[8:]))
	if usec < 0 || usec >= 1e6 {
		return unix.EDOM
	}
	ns := int64(0) // a huge one waits for ever
	if sec >= 0 && sec < 1<<33 {
		ns = sec*1e9 + usec*1e3
	} else if sec < 0 {
		ns = 1 // as good as no waiting
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if name == unix.SO_SNDTIMEO {
		o.sndTimeo = ns
	} else {
		o.rcvTimeo = ns
	}
	return nil
}

func int32Bytes(v int32) []byte { return binary.LittleEndian.AppendUint32(nil, uint32(v)) }

func boolBytes(v bool) []byte {
	if v {
		return int32Bytes(1)
	}
	return int32Bytes(0)
}

func timevalBytes(ns int64) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(ns/1e9))
	return binary.LittleEndian.AppendUint64(b, uint64(ns%1e9/1e3))
}
