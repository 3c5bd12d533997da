package vfs

import "runsc/sentry/image"

// reserveDevs keeps the device numbers of the image's file systems from being
// given to others while those are made.
func (e *RestoreEnv) reserveDevs() {
	if e.reserved != nil {
		return
	}
	e.reserved = map[uint64]bool{}
	add := func(dev uint64) {
		if !e.reserved[dev] && claimAnonDev(dev) {
			e.reserved[dev] = true
		}
	}
	eachDev(e, image.KindTmpfs, add, func(r *image.Tmpfs) uint64 { return r.Dev })
	eachDev(e, image.KindOverlay, add, func(r *image.Overlay) uint64 { return r.Dev })
	eachDev(e, image.KindGofer, add, func(r *image.Gofer) uint64 { return r.Dev })
	eachDev(e, image.KindErofs, add, func(r *image.Erofs) uint64 { return r.Dev })
	eachDev(e, image.KindFuse, add, func(r *image.Fuse) uint64 { return r.Dev })
	eachDev(e, image.KindPseudo, add, func(r *image.Pseudo) uint64 { return r.Dev })
}

// eachDev calls add with the device number of each file system of a kind. A
// record that cannot be read is an error for who needs it.
func eachDev[T any](e *RestoreEnv, kind image.Kind, add func(uint64), dev func(*T) uint64) {
	for _, id := range e.IDs(kind) {
		var rec T
		if e.Get(kind, id, &rec) == nil {
			add(dev(&rec))
		}
	}
}

// KeepDev returns the device number of a restored file system: the saved one,
// unless another file system of this sandbox or of the image has it.
func (e *RestoreEnv) KeepDev(saved uint64) uint64 {
	dev := saved
	if e.reserved[saved] {
		delete(e.reserved, saved)
	} else {
		dev = NewAnonDev()
	}
	if e.devs == nil {
		e.devs = map[uint64]uint64{}
	}
	if _, ok := e.devs[saved]; !ok {
		e.devs[saved] = dev
	}
	return dev
}

// SetDev says that a saved device number became that of a file system which
// could not take it over.
func (e *RestoreEnv) SetDev(saved, dev uint64) {
	if e.devs == nil {
		e.devs = map[uint64]uint64{}
	}
	e.devs[saved] = dev
}

// Dev returns what a saved device number became.
func (e *RestoreEnv) Dev(saved uint64) uint64 {
	if dev, ok := e.devs[saved]; ok {
		return dev
	}
	return saved
}
