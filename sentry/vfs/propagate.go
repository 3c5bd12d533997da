package vfs

import (
	"slices"

	"golang.org/x/sys/unix"
)

// propagation is what mount_namespaces(7) calls the propagation type.
type propagation struct {
	peer       uint32 `save:"rec"` // shared peer group, 0: none
	master     uint32 `save:"rec"` // the peer group that a slave listens to
	unbindable bool   `save:"rec"`
}

// peerGroup is who hears of changes below the members.
type peerGroup struct {
	members []*Mount // shared mounts of the group
	slaves  []*Mount // mounts whose master the group is
}

// Bounds on attached mounts, as fs.mount-max: propagation can double their
// number with every mount. What is to be done under the lock grows with them.
const (
	maxMounts    = 4096  // in a namespace
	maxAllMounts = 32768 // in all
)

// roomLocked checks that n mounts can be added to a namespace.
func (ns *Namespace) roomLocked(n int) error {
	if ns.mounts+n > maxMounts || len(mounts.at)+n > maxAllMounts {
		return unix.ENOSPC
	}
	return nil
}

func (t *mountTable) group(id uint32) *peerGroup {
	g := t.groups[id]
	if g == nil {
		g = &peerGroup{}
		t.groups[id] = g
	}
	return g
}

// without removes m from list in place.
func without(list []*Mount, m *Mount) []*Mount {
	if i := slices.Index(list, m); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// setPropLocked changes m's type and keeps the groups.
func (m *Mount) setPropLocked(p propagation) {
	old := m.prop
	if old.peer != p.peer && old.peer != 0 {
		g := mounts.group(old.peer)
		g.members = without(g.members, m)
		if len(g.members) == 0 {
			// The last peer went: its slaves follow its master instead.
			delete(mounts.groups, old.peer)
			for _, s := range g.slaves {
				s.prop.master = old.master
				if old.master != 0 {
					up := mounts.group(old.master)
					up.slaves = append(up.slaves, s)
				}
			}
			if p.master == old.peer {
				p.master = old.master
			}
		}
	}
	if m.prop.master != p.master {
		if old.master != 0 {
			if g := mounts.groups[old.master]; g != nil {
				g.slaves = without(g.slaves, m)
			}
		}
		if p.master != 0 {
			g := mounts.group(p.master)
			g.slaves = append(g.slaves, m)
		}
	}
	if old.peer != p.peer && p.peer != 0 {
		g := mounts.group(p.peer)
		g.members = append(g.members, m)
	}
	m.prop = p
}

// changeLocked is what mount(2) with MS_SHARED, MS_SLAVE, MS_PRIVATE or
// MS_UNBINDABLE does (Linux's change_mnt_propagation).
func (m *Mount) changeLocked(flag uint32) {
	p := m.prop
	switch flag {
	case unix.MS_SHARED:
		p.unbindable = false
		if p.peer == 0 {
			p.peer = lastGroup.Add(1)
		}
	case unix.MS_SLAVE:
		p.unbindable = false
		if p.peer != 0 {
			// With no peer left to follow, setPropLocked hands over the
			// group's own master.
			p.master, p.peer = p.peer, 0
		}
	case unix.MS_PRIVATE:
		p = propagation{}
	case unix.MS_UNBINDABLE:
		p = propagation{unbindable: true}
	}
	m.setPropLocked(p)
}

// receiver is a mount that hears of what happens on another.
type receiver struct {
	m     *Mount
	slave bool
}

// receiversLocked returns who hears of mounts made and removed on members of
// a peer group, themselves included.
func receiversLocked(group uint32) []receiver {
	if group == 0 {
		return nil
	}
	var out []receiver
	seen := make(map[*Mount]bool)
	add := func(o *Mount, slave bool) bool {
		if seen[o] {
			return false
		}
		seen[o] = true
		out = append(out, receiver{o, slave})
		return true
	}
	var visit func(id uint32, slave bool)
	visit = func(id uint32, slave bool) {
		g := mounts.groups[id]
		if g == nil {
			return
		}
		for _, o := range g.members {
			add(o, slave)
		}
		for _, s := range g.slaves {
			if add(s, true) && s.prop.peer != 0 {
				visit(s.prop.peer, true)
			}
		}
	}
	visit(group, false)
	return out
}

// attachSharedLocked attaches m at p, whose mount is shared, and gives every
// mount that hears of it a copy. Errors leave nothing behind.
func (m *Mount) attachSharedLocked(p Path) error {
	// Before m is attached: its own mounts, which may be peers, do not hear
	// (IS_MNT_NEW of Linux).
	var receivers []receiver
	for _, r := range receiversLocked(p.Mount.prop.peer) {
		if r.m != p.Mount && r.m.ns != nil && r.m.sb == p.Mount.sb && r.m.shows(p.Dentry) {
			receivers = append(receivers, r)
		}
	}
	size := 0
	m.eachLocked(func(o *Mount) {
		size++
		if o.prop.peer == 0 {
			o.changeLocked(unix.MS_SHARED)
		}
	})
	if len(mounts.at)+size*(len(receivers)+1) > maxAllMounts {
		return unix.ENOSPC
	}
	need := map[*Namespace]int{p.Mount.ns: size}
	for _, r := range receivers {
		need[r.m.ns] += size
	}
	for ns, n := range need {
		if err := ns.roomLocked(n); err != nil {
			return err
		}
	}
	m.attachLocked(p)
	for _, r := range receivers {
		cp := copyTreeLocked(m, m.root, true, false, nil)
		if r.slave {
			cp.eachLocked(func(o *Mount) {
				o.changeLocked(unix.MS_SLAVE)
				if r.m.prop.peer != 0 {
					o.changeLocked(unix.MS_SHARED)
				}
			})
		}
		cp.attachLocked(topLocked(Path{r.m, p.Dentry}))
	}
	return nil
}

// shows tells whether d lies in the part of the superblock that m shows.
func (m *Mount) shows(d *Dentry) bool {
	m.sb.nameMu.RLock()
	defer m.sb.nameMu.RUnlock()
	return m.root.isAncestorOf(d)
}

// topLocked follows mounts stacked on p.
func topLocked(p Path) Path {
	for {
		top := mounts.at[mountKey{p.Mount, p.Dentry}]
		if top == nil {
			return p
		}
		p = top.Root()
	}
}

// copiesLocked returns the mounts that appeared by propagation together with
// m and those below it, and so go with them; their own parents first.
func (m *Mount) copiesLocked() []*Mount {
	var out []*Mount
	known := make(map[uint32][]receiver)
	m.eachLocked(func(o *Mount) {
		if o.parent == nil || o.parent.prop.peer == 0 {
			return
		}
		group := o.parent.prop.peer
		list, ok := known[group]
		if !ok {
			list = receiversLocked(group)
			known[group] = list
		}
		for _, r := range list {
			if r.m == o.parent {
				continue
			}
			if cp := mounts.at[mountKey{r.m, o.mountpoint}]; cp != nil && cp.sb == o.sb {
				out = append(out, cp)
			}
		}
	})
	return out
}
