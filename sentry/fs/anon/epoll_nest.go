package anon

import "slices"

// depth returns how many instances hang below ep, at most: 1 for one that
// watches none. It is negative when stop is among them or they are more than
// maxNest. nestMu is held.
func (ep *Epoll) depth(stop *Epoll, level int) int {
	if ep == stop || level > maxNest {
		return -1
	}
	most := 0
	for _, child := range ep.children() {
		d := child.depth(stop, level+1)
		if d < 0 {
			return -1
		}
		most = max(most, d)
	}
	return most + 1
}

// height returns how many instances watch ep above one another, itself
// included. nestMu is held, and the depth is bounded by earlier checks.
func (ep *Epoll) height() int {
	ep.parentMu.Lock()
	parents := slices.Clone(ep.parents)
	ep.parentMu.Unlock()
	most := 0
	for _, p := range parents {
		most = max(most, p.height())
	}
	return most + 1
}

// children returns the instances that ep watches.
func (ep *Epoll) children() []*Epoll {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	var list []*Epoll
	for key := range ep.items {
		if child, ok := key.file.Ops().(*Epoll); ok {
			list = append(list, child)
		}
	}
	return list
}

func (ep *Epoll) addParent(p *Epoll) {
	ep.parentMu.Lock()
	defer ep.parentMu.Unlock()
	ep.parents = append(ep.parents, p)
}

func (ep *Epoll) removeParent(p *Epoll) {
	ep.parentMu.Lock()
	defer ep.parentMu.Unlock()
	if i := slices.Index(ep.parents, p); i >= 0 {
		ep.parents = slices.Delete(ep.parents, i, i+1)
	}
}
