package fscontext

import (
	"fmt"

	"runsc/sentry/image"
	"runsc/sentry/vfs"
)

// StateKind implements vfs.StateSaver.
func (x *Context) StateKind() image.Kind { return image.KindMountContext }

// SaveState implements vfs.StateSaver.
func (x *Context) SaveState(e *vfs.SaveEnv, id image.ID) (err error) {
	x.mu.Lock()
	rec := image.MountContext{ID: id, Type: x.typ.Name, Phase: uint8(x.phase), Source: x.source,
		Options: append([]string{}, x.options...), Flags: x.set, Mask: x.mask, Log: append([]string{}, x.log...)}
	super := x.super
	x.mu.Unlock()
	if super != nil {
		if rec.Super, err = vfs.SavePath(e, super.Root()); err != nil {
			return err
		}
	}
	return e.Put(image.KindMountContext, &rec)
}

func init() {
	vfs.RegisterState(image.KindMountContext, func(e *vfs.RestoreEnv, id image.ID) (any, error) {
		var rec image.MountContext
		if err := e.Get(image.KindMountContext, id, &rec); err != nil {
			return nil, err
		}
		return restore(e, &rec)
	})
}

func restore(e *vfs.RestoreEnv, rec *image.MountContext) (*Context, error) {
	x := &Context{typ: vfs.FSType{Name: rec.Type}, phase: int(rec.Phase), source: rec.Source,
		options: rec.Options, set: rec.Flags, mask: rec.Mask, log: rec.Log}
	if t, err := vfs.LookupFSType(rec.Type); err == nil {
		x.typ = t
	}
	p, err := vfs.RestorePath(e, rec.Super)
	if err != nil {
		return nil, err
	}
	if p.Ok() {
		x.super = p.Mount
		p.Dentry.DecRef()
	}
	known := x.phase >= creating && x.phase <= failed
	needsSuper := x.phase != creating && x.phase != failed
	size := 0
	for _, o := range rec.Options {
		size += len(o) + 1
	}
	if !known || needsSuper && x.super == nil || x.phase == creating && (x.super != nil || x.typ.New == nil) ||
		len(x.log) > maxLog || size > maxOptions {
		x.Release()
		return nil, fmt.Errorf("mount context %d of the image cannot be", rec.ID)
	}
	return x, nil
}
