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
	// A record that cannot be read is an error for who needs it.
	for _, id := range e.IDs(image.KindTmpfs) {
		var rec image.Tmpfs
		if e.Get(image.KindTmpfs, id, &rec) == nil {
			add(rec.Dev)
		}
	}
	for _, id := range e.IDs(image.KindOverlay) {
		var rec image.Overlay
		if e.Get(image.KindOverlay, id, &rec) == nil {
			add(rec.Dev)
		}
	}
	for _, id := range e.IDs(image.KindGofer) {
		var rec image.Gofer
		if e.Get(image.KindGofer, id, &rec) == nil {
			add(rec.Dev)
		}
	}
	for _, id := range e.IDs(image.KindErofs) {
		var rec image.Erofs
		if e.Get(image.KindErofs, id, &rec) == nil {
			add(rec.Dev)
		}
	}
	for _, id := range e.IDs(image.KindFuse) {
		var rec image.Fuse
		if e.Get(image.KindFuse, id, &rec) == nil {
			add(rec.Dev)
		}
	}
	for _, id := range e.IDs(image.KindPseudo) {
		var rec image.Pseudo
		if e.Get(image.KindPseudo, id, &rec) == nil {
			add(rec.Dev)
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
