package state

import (
	"errors"

	"runsc/sentry/image"
)

// What became of a container of an image.
const (
	waiting = iota
	restored
	gone
)

// part is one container of an image.
type part struct {
	// immutable
	name   string
	id     image.ID          // the numbers of its objects begin with it
	end    image.ID          // and end before this
	shares map[image.ID]bool // it has these of others too
	files  []openFile

	state int
}

// openFile is an open file description and the file system's part of it, if
// that has a record.
type openFile struct {
	id  image.ID
	ops image.Ref
}

// readParts reads what belongs to which container.
func (im *Image) readParts(r *image.Restorer) error {
	im.owners = map[image.ID]*part{}
	ids := r.IDs(image.KindContainer)
	if len(ids) == 0 {
		return errors.New("the image has no container")
	}
	for i, id := range ids {
		var rec image.Container
		if err := r.Get(image.KindContainer, id, &rec); err != nil {
			return err
		}
		p := &part{name: rec.Name, id: id, end: ^image.ID(0), shares: map[image.ID]bool{}}
		for _, s := range rec.Shares {
			p.shares[s] = true
		}
		if i > 0 {
			im.parts[i-1].end = id
		}
		im.parts = append(im.parts, p)
		if len(ids) == 1 {
			return nil // the rest is about others
		}
		if err := im.readTasks(r, p, &rec); err != nil {
			return err
		}
	}
	return nil
}

// readTasks reads the mounts and open files of a container's tasks.
func (im *Image) readTasks(r *image.Restorer, p *part, rec *image.Container) error {
	seen := map[image.ID]bool{}
	for _, gid := range rec.Groups {
		var g image.ThreadGroup
		if err := r.Get(image.KindThreadGroup, gid, &g); err != nil {
			return err
		}
		for _, tid := range g.Tasks {
			var t image.Task
			if err := r.Get(image.KindTask, tid, &t); err != nil {
				return err
			}
			if ns := t.MountNamespace; ns != 0 && !seen[ns] {
				seen[ns] = true
				var rec image.MountNamespace
				if err := r.Get(image.KindMountNamespace, ns, &rec); err != nil {
					return err
				}
				for _, m := range rec.Mounts {
					if im.owners[m] == nil {
						im.owners[m] = p
					}
				}
			}
			if t.Files != 0 && !seen[t.Files] {
				seen[t.Files] = true
				if err := p.readFiles(r, t.Files, seen); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (p *part) readFiles(r *image.Restorer, table image.ID, seen map[image.ID]bool) error {
	var rec image.FDTable
	if err := r.Get(image.KindFDTable, table, &rec); err != nil {
		return err
	}
	for _, fd := range rec.FDs {
		if seen[fd.File] {
			continue
		}
		seen[fd.File] = true
		var f image.File
		if err := r.Get(image.KindFile, fd.File, &f); err != nil {
			return err
		}
		if f.Ops.ID != 0 {
			p.files = append(p.files, openFile{fd.File, f.Ops})
		}
	}
	return nil
}

// needed tells whether a container that is still to come has an object; 0 is
// anything.
func (im *Image) needed(id image.ID) bool {
	for _, p := range im.parts {
		if p.state == waiting && (id == 0 || id >= p.id && id < p.end || p.shares[id]) {
			return true
		}
	}
	return false
}

// absent names the container that a mount belongs to if it was not restored.
func (im *Image) absent(mount image.ID) (string, bool) {
	if p := im.owners[mount]; p != nil && p.state != restored {
		return p.name, true
	}
	return "", false
}
