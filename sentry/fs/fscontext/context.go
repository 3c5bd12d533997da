package fscontext

import (
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// Name is what /proc/PID/fd shows of a context.
const Name = "anon_inode:[fscontext]"

// Phases of a context, as fs_context.h has them. The numbers are those of the
// image.
const (
	creating     = iota // parameters of a new file system
	created             // waits for fsmount
	mounted             // waits for a reconfiguration
	reconfigures        // parameters of a reconfiguration
	failed
)

const (
	maxLog     = 8    // messages kept, the last ones (struct fc_log)
	maxOptions = 4096 // bytes of parameters, a page as for mount(2)
)

// Context is an open context.
type Context struct {
	typ vfs.FSType `save:"rec"` // immutable

	mu sync.Mutex `save:"none: not held at a stop"`
	// mu guards:
	phase     int        `save:"rec"`
	source    string     `save:"rec"`
	options   []string   `save:"rec"` // "key" or "key=value"
	set, mask uint32     `save:"rec"` // MS_* flags of the file system
	log       []string   `save:"rec"`
	super     *vfs.Mount `save:"rec"` // of the file system, in no tree
}

// Open returns a context for a new file system (fsopen(2)). ENODEV if there
// is no such type.
func Open(name string) (*Context, error) {
	typ, err := vfs.LookupFSType(name)
	if err != nil || typ.New == nil {
		return nil, unix.ENODEV
	}
	return &Context{typ: typ}, nil
}

// Pick returns a context for the file system whose mount has its root at p
// (fspick(2)).
func Pick(p vfs.Path) (*Context, error) {
	if p.Mount == nil || p.Mount.Root() != p {
		return nil, unix.EINVAL
	}
	typ := vfs.FSType{Name: p.Mount.Filesystem().Type()}
	if t, err := vfs.LookupFSType(typ.Name); err == nil {
		typ = t
	}
	return &Context{typ: typ, phase: reconfigures, super: p.Mount.Again(0)}, nil
}

// Set gives a parameter (FSCONFIG_SET_FLAG and FSCONFIG_SET_STRING, of which
// the former has no value).
func (x *Context) Set(key, value string, flag bool) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.startLocked(); err != nil {
		return err
	}
	if x.superFlagLocked(key) {
		return nil
	}
	if key == "source" {
		return x.setSourceLocked(value, flag)
	}
	o := key
	if !flag {
		o += "=" + value
	}
	if x.typ.Check != nil {
		known, err := x.typ.Check(o)
		if !known {
			return x.failLocked(x.typ.Name + ": Unknown parameter '" + key + "'")
		}
		if err != nil {
			return x.failLocked(x.typ.Name + ": Bad value for '" + key + "'")
		}
	}
	size := len(o)
	for _, s := range x.options {
		size += len(s) + 1
	}
	if strings.Contains(o, ",") && !x.typ.Commas {
		return x.failLocked(x.typ.Name + ": Option '" + key + "' contained comma")
	}
	if size >= maxOptions-2 {
		return x.failLocked(x.typ.Name + ": Cumulative options too large")
	}
	x.options = append(x.options, strings.ReplaceAll(o, ",", `\,`))
	return nil
}

// Unset is the answer to a parameter of a kind that no file system here takes:
// binary data, a path or a descriptor.
func (x *Context) Unset(key string) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.startLocked(); err != nil {
		return err
	}
	return x.failLocked(x.typ.Name + ": Bad value for '" + key + "'")
}

// startLocked checks that parameters can be given now.
func (x *Context) startLocked() error {
	switch x.phase {
	case mounted:
		x.phase = reconfigures
	case creating, reconfigures:
	default:
		return unix.EBUSY
	}
	return nil
}

func (x *Context) setSourceLocked(value string, flag bool) error {
	switch {
	case flag:
		return x.failLocked("Non-string source")
	case x.source != "":
		return x.failLocked("Multiple sources")
	}
	x.source = value
	return nil
}

// superFlagLocked takes the parameters that every file system has
// (vfs_parse_sb_flag).
func (x *Context) superFlagLocked(key string) bool {
	var bit uint32
	switch strings.TrimPrefix(key, "no") {
	case "lazytime":
		bit = unix.MS_LAZYTIME
	case "mand":
		bit = unix.MS_MANDLOCK
	}
	on := !strings.HasPrefix(key, "no")
	if bit == 0 {
		on = key != "async" && key != "rw"
		switch key {
		case "dirsync":
			bit = unix.MS_DIRSYNC
		case "sync", "async":
			bit = unix.MS_SYNCHRONOUS
		case "ro", "rw":
			bit = unix.MS_RDONLY
		default:
			return false
		}
	}
	x.mask |= bit
	x.set &^= bit
	if on {
		x.set |= bit
	}
	return true
}

// failLocked logs an error and is EINVAL.
func (x *Context) failLocked(msg string) error {
	x.logLocked("e " + msg)
	return unix.EINVAL
}

func (x *Context) logLocked(msg string) {
	if len(x.log) == maxLog {
		x.log = append(x.log[:0], x.log[1:]...)
	}
	x.log = append(x.log, msg+"\n")
}

// Create makes the file system (FSCONFIG_CMD_CREATE).
func (x *Context) Create(c vfs.Caller) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.phase != creating {
		return unix.EBUSY
	}
	fs, err := x.typ.New(c, x.source, strings.Join(x.options, ","), vfs.MountFlags(x.set))
	if err != nil {
		x.phase = failed
		x.logLocked("e " + x.typ.Name + ": Cannot be created with these parameters")
		return err
	}
	x.super = vfs.NewSuper(fs, x.set)
	x.phase = created
	x.cleanLocked()
	return nil
}

// cleanLocked forgets what was set.
func (x *Context) cleanLocked() { x.options, x.set, x.mask = nil, 0, 0 }

// Reconfigure changes the file system (FSCONFIG_CMD_RECONFIGURE).
func (x *Context) Reconfigure(c vfs.Caller) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.phase != mounted && x.phase != reconfigures {
		return unix.EBUSY
	}
	err := x.super.Reconfigure(c, x.set, x.mask, strings.Join(x.options, ","))
	if err != nil {
		x.phase = failed
		return err
	}
	x.phase = mounted
	x.cleanLocked()
	return nil
}

// Mount returns a detached mount of what was created (fsmount(2)), once.
func (x *Context) Mount(flags vfs.MountFlags) (*vfs.Mount, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.super == nil {
		return nil, unix.EINVAL
	}
	if x.phase != created {
		return nil, unix.EBUSY
	}
	x.phase = mounted
	return x.super.Again(flags), nil
}

// Release implements vfs.FileOps.
func (x *Context) Release() {
	if x.super != nil {
		x.super.DecRef()
	}
}

// Ready implements vfs.FileOps: without poll of its own a file always is.
func (x *Context) Ready(mask waitq.Mask) waitq.Mask {
	return mask & (waitq.In | waitq.Out | waitq.RdNorm | waitq.WrNorm)
}

// Read implements vfs.Reader: the oldest message. ENODATA if there is none,
// EMSGSIZE, and the message stays, if it is too long.
func (x *Context) Read(_ vfs.Caller, _ *vfs.File, dst *mem.UserBuf) (int, error) {
	x.mu.Lock()
	if len(x.log) == 0 {
		x.mu.Unlock()
		return 0, unix.ENODATA
	}
	msg := x.log[0]
	if len(msg) > dst.Len() {
		x.mu.Unlock()
		return 0, unix.EMSGSIZE
	}
	x.log = x.log[1:]
	x.mu.Unlock()
	return dst.CopyOut([]byte(msg))
}
