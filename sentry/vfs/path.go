package vfs

import "strings"

// Path is a place in the mount tree. A Path is borrowed unless a function
// says that it returns a new reference.
type Path struct {
	Mount  *Mount
	Dentry *Dentry
}

// Ok tells whether p is not the zero Path.
func (p Path) Ok() bool { return p.Dentry != nil }

// IncRef takes a reference to both halves.
func (p Path) IncRef() {
	if p.Mount != nil {
		p.Mount.IncRef()
	}
	if p.Dentry != nil {
		p.Dentry.IncRef()
	}
}

// DecRef drops what IncRef took.
func (p Path) DecRef() {
	if p.Dentry != nil {
		p.Dentry.DecRef()
	}
	if p.Mount != nil {
		p.Mount.DecRef()
	}
}

// Inode borrows the inode at p.
func (p Path) Inode() Inode { return p.Dentry.inode }

// String is the path of p as seen from root, as Linux's d_path gives it:
// " (deleted)" follows the name of an unlinked file. A place that does not lie
// below root is named from the top of its mounts.
func (p Path) String(root Path) string {
	s, _ := p.Resolve(root)
	return s
}

// Resolve is String that also tells whether root was met on the way up (always,
// for things that have no path).
func (p Path) Resolve(root Path) (s string, reached bool) {
	if p.Dentry == nil {
		return "", false
	}
	if p.Dentry.sb.anon != nil {
		return p.Dentry.anonName(), true
	}
	var parts []string
	deleted := p.Dentry.Unlinked()
	d, m := p.Dentry, p.Mount
	mounts.RLock()
	for {
		if d == root.Dentry && m == root.Mount {
			reached = true
			break
		}
		if m != nil && d == m.root {
			if m.parent == nil {
				break
			}
			d, m = m.mountpoint, m.parent
			continue
		}
		name, parent := d.nameAndParent()
		if parent == nil {
			break
		}
		parts = append(parts, name)
		d = parent
	}
	mounts.RUnlock()
	var b strings.Builder
	for i := len(parts) - 1; i >= 0; i-- {
		b.WriteByte('/')
		b.WriteString(parts[i])
	}
	if len(parts) == 0 {
		b.WriteByte('/')
	}
	if deleted {
		b.WriteString(" (deleted)")
	}
	return b.String(), reached
}
