package vfs

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"runsc/sentry/clock"
	"runsc/sentry/image"
	"runsc/sentry/mem"
)

// StateSaver is implemented by what a checkpoint keeps: file systems, inodes
// that may be referred to other than by a path, and those FileOps that opening
// the path again would not bring back. SaveState writes the record of kind
// StateKind and number id; what it refers to it gives to SaveEnv.Save.
type StateSaver interface {
	StateKind() image.Kind
	SaveState(e *SaveEnv, id image.ID) error
}

// FilesystemSaver, InodeSaver and FileOpsSaver are StateSaver as the three
// kinds of implementations have it.
type (
	FilesystemSaver interface {
		Filesystem
		StateSaver
	}
	InodeSaver interface {
		Inode
		StateSaver
	}
	FileOpsSaver interface {
		FileOps
		StateSaver
	}
)

// Numbered is implemented by inodes of host files: the number that the guest
// knows a file by while it is open is kept.
type Numbered interface {
	// Number is the inode number, without asking the host; 0 if it need not
	// be kept.
	Number() uint64
	KeepNumber(ino uint64)
}

// Outside is implemented by FileOps whose readiness after a restore has nothing
// to do with what it was: those of the new task's streams.
type Outside interface{ Outside() }

// SaveEnv is what the parts of a save share. Finish ends the writing of
// records.
type SaveEnv struct {
	*image.Saver
	// Frames collects the memory that the image has to hold.
	Frames *mem.FrameSet
	Caller Caller
	// Validate records size and time of open host files.
	Validate bool
	// Outside names the containers whose mounts cannot be in the image.
	Outside map[*Namespace]string
	// TaskID numbers the task that a file belongs to (a signalfd); 0 if it is
	// not in the image.
	TaskID func(task any) image.ID

	later  []func() error
	tables []*FDTable
	files  []*File
}

// Later calls fn from Finish: for what may refer only to objects that are in
// the image for another reason.
func (e *SaveEnv) Later(fn func() error) { e.later = append(e.later, fn) }

// Save saves an object once and returns the reference to it. Objects that
// refer to each other are fine.
func (e *SaveEnv) Save(obj any) (image.Ref, error) {
	s, ok := obj.(StateSaver)
	if !ok {
		return image.Ref{}, fmt.Errorf("%T cannot be saved yet", obj)
	}
	id, fresh := e.ID(obj)
	ref := image.Ref{Kind: s.StateKind(), ID: id}
	if !fresh {
		return ref, nil
	}
	return ref, s.SaveState(e, id)
}

// Finish writes what was put off, and the file locks. It is called once,
// after everything else was saved.
func (e *SaveEnv) Finish() error {
	for len(e.later) > 0 {
		fn := e.later[0]
		e.later = e.later[1:]
		if err := fn(); err != nil {
			return err
		}
	}
	return e.saveLocks()
}

// FrameTaker gives out the memory of an image; *mem.FrameMap is one.
type FrameTaker interface {
	// Take returns what the saved frames of r became, in order, with a
	// reference to each.
	Take(r mem.Range) ([]mem.Range, error)
}

// RestoreEnv is what the parts of a restore share. Finish or Abort ends it. An
// image of several containers may be restored in stages, each ended by Settle.
type RestoreEnv struct {
	*image.Restorer
	Memory  *mem.File
	Account *mem.Account
	Frames  FrameTaker
	Caller  Caller
	Clock   *clock.Clock // set to the saved monotonic time already, or else:
	// ClockShift is what to add to saved times of CLOCK_MONOTONIC.
	ClockShift int64
	// HostFS returns the host's tree that the new specification mounts at a
	// destination, "/" for the root. It is called once for each.
	HostFS func(destination string) (Filesystem, error)
	// NewFS makes a file system of the Sentry's own, other than tmpfs and
	// overlay.
	NewFS func(typ, source, options string) (Filesystem, error)
	// Stream returns a new reference to the file that is standard stream n of
	// the new task.
	Stream func(n int) (*File, error)
	// Task returns the restored task with a number; it is called from Finish.
	Task func(id image.ID) (any, error)
	// SignalTarget is who the owner of a file is, by the type and number of
	// F_SETOWN_EX.
	SignalTarget func(typ, pid int32) SignalTarget
	Validate     bool
	// Needed tells whether a later stage needs an object, or for 0 whether
	// there is one; nil: there is none.
	Needed func(id image.ID) bool
	// Absent names the container that a mount belongs to if it is of a later
	// stage.
	Absent func(mount image.ID) (string, bool)

	depth     int
	later     []func() error
	cleanup   []func()
	held      []heldObject
	waiting   []waitingPath
	locked    map[int]bool // locks of the image that were taken
	absentees map[image.ID]*absentee
	undo      []func()
	atStart   []func()
	owned     map[image.ID]bool
	loose     map[image.ID]Filesystem // those that nobody releases
	devs      map[uint64]uint64       // saved device numbers and what they became
	reserved  map[uint64]bool         // device numbers that are kept for the image's
	groups    map[uint32]uint32
	mappables map[image.ID]mem.Mappable
	taken     map[image.ID]bool // operations that have their description
	firstID   uint64            // mounts numbered after it were made by this restore
	seen      map[any]bool
	started   bool
	done      bool // Finish succeeded
}

// Later calls fn from Finish, when all objects exist.
func (e *RestoreEnv) Later(fn func() error) { e.later = append(e.later, fn) }

// Cleanup calls fn at the end of the stage, whether the restore succeeds or
// not: for the references that the environment itself holds.
func (e *RestoreEnv) Cleanup(fn func()) { e.cleanup = append(e.cleanup, fn) }

// heldObject is an object that the environment has a reference to.
type heldObject struct {
	id   image.ID
	drop func()
}

// Hold is Cleanup for an object that may have another number of users when a
// later stage asks for it: it is kept as long as one needs it, without a
// number as long as there is one.
func (e *RestoreEnv) Hold(id image.ID, drop func()) { e.held = append(e.held, heldObject{id, drop}) }

func (e *RestoreEnv) needed(id image.ID) bool { return e.Needed != nil && e.Needed(id) }

// waitingPath is a path that leads into a container of a later stage.
type waitingPath struct {
	mount image.ID
	fn    func() error
}

// WhenReachable calls fn now, or in the stage that brings the mount of the
// path.
func (e *RestoreEnv) WhenReachable(p image.Path, fn func() error) error {
	if e.Absent != nil {
		if _, absent := e.Absent(p.Mount); absent {
			e.waiting = append(e.waiting, waitingPath{p.Mount, fn})
			return nil
		}
	}
	return fn()
}

// Undo calls fn at the end of a restore that fails: for what an object that
// nobody releases has put into tables.
func (e *RestoreEnv) Undo(fn func()) { e.undo = append(e.undo, fn) }

// AtStart calls fn from Start, which comes after Finish: for timers. The clock
// may be set to the saved time once more before the tasks run, and what was due in
// between must not be early then.
func (e *RestoreEnv) AtStart(fn func()) { e.atStart = append(e.atStart, fn) }

// Start does what waits until the tasks run. fn of AtStart may lock nothing but
// leaves.
func (e *RestoreEnv) Start() {
	for _, fn := range e.atStart {
		fn()
	}
	e.atStart = nil
}

// Finish does what was put off and drops the references of the environment.
// Nothing is restored after it. On an error the caller drops what it has.
func (e *RestoreEnv) Finish() error {
	err := e.Settle()
	e.Abort()
	return err
}

// Settle ends a stage: it does what was put off and drops the references that
// no later stage needs. On an error the caller drops what it has.
func (e *RestoreEnv) Settle() error {
	waiting := e.waiting
	e.waiting = nil
	for _, w := range waiting {
		w := w
		e.Later(func() error { return e.WhenReachable(image.Path{Mount: w.mount}, w.fn) })
	}
	var err error
	for err == nil && len(e.later) > 0 {
		fn := e.later[0]
		e.later = e.later[1:]
		err = fn()
	}
	if err == nil {
		err = e.restoreLocks()
	}
	e.endStage(err == nil)
	return err
}

// Cancel ends a stage that failed.
func (e *RestoreEnv) Cancel() { e.endStage(false) }

// Abort drops the references of the environment.
func (e *RestoreEnv) Abort() {
	e.Needed = nil
	e.waiting = nil
	e.endStage(e.done)
}

// endStage drops what no later stage needs.
func (e *RestoreEnv) endStage(done bool) {
	e.done = done
	for i := len(e.cleanup) - 1; i >= 0; i-- {
		e.cleanup[i]()
	}
	e.dropAbsentees()
	var keep []heldObject
	for i := len(e.held) - 1; i >= 0; i-- {
		if h := e.held[i]; e.needed(h.id) {
			keep = append(keep, h)
		} else {
			h.drop()
		}
	}
	slices.Reverse(keep)
	for id, fs := range e.loose {
		if !e.needed(id) {
			delete(e.loose, id)
			fs.Release()
		}
	}
	for i := len(e.undo) - 1; i >= 0 && !done; i-- {
		e.undo[i]()
	}
	e.held, e.later, e.cleanup, e.undo, e.mappables, e.started = keep, nil, nil, nil, nil, false
}

// maxDepth bounds how deeply records may refer to one another.
const maxDepth = 10000

var errDepth = errors.New("records of the image refer to each other too deeply")

// nested calls fn one level further down.
func nested[T any](e *RestoreEnv, fn func() (T, error)) (T, error) {
	e.depth++
	defer func() { e.depth-- }()
	if e.depth > maxDepth {
		var zero T
		return zero, errDepth
	}
	return fn()
}

// once is image.Once with a bound on the depth.
func once[T any](e *RestoreEnv, id image.ID, build func() (T, error)) (T, error) {
	return image.Once(e.Restorer, id, func() (T, error) { return nested(e, build) })
}

var states struct {
	mu sync.RWMutex
	// mu guards:
	restore map[image.Kind]func(*RestoreEnv, image.ID) (any, error)
}

// RegisterState says how objects of a kind are made from their records.
// Packages call it when they are initialized: it is code, no state. The object
// is kept until the environment ends, with a reference that restore arranges
// to be dropped by Cleanup if the object has a count.
func RegisterState(kind image.Kind, restore func(e *RestoreEnv, id image.ID) (any, error)) {
	states.mu.Lock()
	defer states.mu.Unlock()
	if states.restore == nil {
		states.restore = map[image.Kind]func(*RestoreEnv, image.ID) (any, error){}
	}
	states.restore[kind] = restore
}

// KnownState tells whether records of a kind can be restored by this package
// and those registered.
func KnownState(kind image.Kind) bool {
	if kind >= image.KindFDTable && kind <= image.KindFileData || kind == image.KindOverlayDir {
		return true
	}
	states.mu.RLock()
	defer states.mu.RUnlock()
	return states.restore[kind] != nil
}

// Restored returns the object that ref refers to, made at the first call; the
// reference stays the environment's.
func Restored[T any](e *RestoreEnv, ref image.Ref) (T, error) {
	return once(e, ref.ID, func() (T, error) {
		var zero T
		e.reserveDevs()
		states.mu.RLock()
		fn := states.restore[ref.Kind]
		states.mu.RUnlock()
		if fn == nil {
			return zero, fmt.Errorf("the image refers to an object of kind %d", ref.Kind)
		}
		o, err := fn(e, ref.ID)
		if err != nil {
			return zero, err
		}
		t, ok := o.(T)
		if !ok {
			return zero, fmt.Errorf("object %d of the image is of kind %d, not what refers to it needs", ref.ID, ref.Kind)
		}
		if fs, ok := o.(Filesystem); ok {
			if e.loose == nil {
				e.loose = map[image.ID]Filesystem{}
			}
			e.loose[ref.ID] = fs
		}
		return t, nil
	})
}

// RestoreInode returns a new reference to an inode.
func (e *RestoreEnv) RestoreInode(ref image.Ref) (Inode, error) {
	i, err := Restored[Inode](e, ref)
	if err == nil {
		i.IncRef()
	}
	return i, err
}

// RestoreFilesystem returns a file system. Whoever releases it asks for it
// with OwnFilesystem instead.
func (e *RestoreEnv) RestoreFilesystem(ref image.Ref) (Filesystem, error) {
	return Restored[Filesystem](e, ref)
}

// OwnFilesystem is RestoreFilesystem for the one who is to release it.
func (e *RestoreEnv) OwnFilesystem(ref image.Ref) (Filesystem, error) {
	fs, err := e.RestoreFilesystem(ref)
	if err != nil {
		return nil, err
	}
	if e.owned[ref.ID] {
		return nil, fmt.Errorf("file system %d of the image is used twice", ref.ID)
	}
	if e.owned == nil {
		e.owned = map[image.ID]bool{}
	}
	e.owned[ref.ID] = true
	delete(e.loose, ref.ID)
	return fs, nil
}

// FirstTime tells whether it is called with key for the first time.
func (e *RestoreEnv) FirstTime(key any) bool {
	if e.seen == nil {
		e.seen = map[any]bool{}
	}
	first := !e.seen[key]
	e.seen[key] = true
	return first
}

// TimeRecord and RestoredTime convert times.
func TimeRecord(t Timespec) image.Time { return image.Time{Sec: t.Sec, Nsec: t.Nsec} }

// RestoredTime is TimeRecord's counterpart.
func RestoredTime(t image.Time) Timespec { return Timespec{Sec: t.Sec, Nsec: min(t.Nsec, 999_999_999)} }
