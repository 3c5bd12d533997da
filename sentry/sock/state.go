package sock

import (
	"slices"

	"runsc/sentry/image"
)

// Record returns the options as an image has them.
func (o *Options) Record() image.SocketOptions {
	o.mu.Lock()
	defer o.mu.Unlock()
	rec := image.SocketOptions{
		SndBuf: o.sndBuf, RcvBuf: o.rcvBuf, SndTimeo: o.sndTimeo, RcvTimeo: o.rcvTimeo,
		RcvLowat: o.rcvLowat, Priority: o.priority, Mark: o.mark, Linger: o.linger,
	}
	for name, on := range o.flags {
		if on {
			rec.Flags = append(rec.Flags, name)
		}
	}
	slices.Sort(rec.Flags)
	return rec
}

// RestoreOptions is Record's counterpart.
func RestoreOptions(rec *image.SocketOptions) *Options {
	o := NewOptions()
	o.sndBuf, o.rcvBuf = min(max(rec.SndBuf, minSndBuf), 2*maxBuf), min(max(rec.RcvBuf, minRcvBuf), 2*maxBuf)
	o.sndTimeo, o.rcvTimeo = max(rec.SndTimeo, 0), max(rec.RcvTimeo, 0)
	o.rcvLowat, o.priority, o.mark, o.linger = max(rec.RcvLowat, 1), rec.Priority, rec.Mark, rec.Linger
	for _, name := range rec.Flags {
		if flagOptions[name] {
			o.flags[name] = true
		}
	}
	return o
}

// CredsRecord and RestoredCreds convert credentials.
func CredsRecord(c Creds) image.SocketCreds {
	return image.SocketCreds{PID: c.PID, UID: c.UID, GID: c.GID}
}

// RestoredCreds is CredsRecord's counterpart.
func RestoredCreds(c image.SocketCreds) Creds { return Creds{PID: c.PID, UID: c.UID, GID: c.GID} }
