package anon

import (
	"fmt"
	"sort"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/image"
	"runsc/sentry/vfs"
)

// StateKind implements vfs.StateSaver.
func (ep *Epoll) StateKind() image.Kind { return image.KindEpoll }

// SaveState implements vfs.StateSaver. The record comes last: a member does
// not keep its file open, so only those count that others have saved.
func (ep *Epoll) SaveState(e *vfs.SaveEnv, id image.ID) error {
	e.Later(func() error {
		rec := ep.record(e, id)
		return e.Put(image.KindEpoll, &rec)
	})
	return nil
}

func (ep *Epoll) record(e *vfs.SaveEnv, id image.ID) image.Epoll {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	var items []*item
	for _, it := range ep.items {
		if e.Known(it.file) != 0 {
			items = append(items, it)
		}
	}
	sort.Slice(items, func(i, j int) bool {
		a, b := e.Known(items[i].file), e.Known(items[j].file)
		return a < b || a == b && items[i].fd < items[j].fd
	})
	rec := image.Epoll{ID: id}
	at := make(map[*item]int)
	for k, it := range items {
		at[it] = k
		rec.Items = append(rec.Items, image.EpollItem{File: e.Known(it.file), FD: it.fd, Events: it.events, Data: it.data})
	}
	ep.readyMu.Lock()
	defer ep.readyMu.Unlock()
	for it := ep.ready.head; it != nil; it = it.next {
		if k, ok := at[it]; ok {
			rec.Ready = append(rec.Ready, k)
		}
	}
	return rec
}

func restoreEpoll(e *vfs.RestoreEnv, ep *Epoll, id image.ID) error {
	var rec image.Epoll
	if err := e.Get(image.KindEpoll, id, &rec); err != nil {
		return err
	}
	ready := make(map[int]bool)
	for _, k := range rec.Ready {
		if k < 0 || k >= len(rec.Items) || ready[k] {
			return fmt.Errorf("epoll instance %d of the image has no member %d", id, k)
		}
		ready[k] = true
	}
	items := make([]*item, len(rec.Items))
	for k, x := range rec.Items {
		it, err := ep.restoreItem(e, &x)
		if err != nil {
			return fmt.Errorf("member %d of epoll instance %d of the image: %w", k, id, err)
		}
		items[k] = it
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	for _, k := range rec.Ready {
		ep.push(items[k])
	}
	for _, it := range items {
		// An edge that was reported is not reported again.
		_, outside := it.file.Ops().(vfs.Outside)
		if (it.events&unix.EPOLLET == 0 || outside) && ep.poll(it) != 0 {
			ep.push(it)
		}
	}
	return nil
}

// restoreItem is Add without a look at whether the member is ready.
func (ep *Epoll) restoreItem(e *vfs.RestoreEnv, x *image.EpollItem) (*item, error) {
	file, ok := image.Object[*vfs.File](e.Restorer, x.File)
	if !ok {
		return nil, fmt.Errorf("file %d is not open", x.File)
	}
	w, ok := file.Ops().(vfs.Waitable)
	if !ok {
		return nil, unix.EPERM
	}
	child, nested := file.Ops().(*Epoll)
	if child == ep {
		return nil, unix.EINVAL
	}
	if nested {
		nestMu.Lock()
		defer nestMu.Unlock()
		if d := child.depth(ep, 0); d < 0 || d+ep.height() > maxNest {
			return nil, unix.ELOOP
		}
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	key := itemKey{file, x.FD}
	if ep.items[key] != nil {
		return nil, unix.EEXIST
	}
	if members.Add(1) > maxMembers {
		members.Add(-1)
		return nil, unix.ENOSPC
	}
	it := &item{ep: ep, file: file, fd: x.FD, events: x.Events, data: x.Data}
	it.entry.Func = it.event
	if nested {
		child.addParent(ep)
	}
	file.Watch(it)
	ep.items[key] = it
	w.Queue().Register(&it.entry, waitq.Mask(x.Events&^privateBits))
	it.queued = true
	return it, nil
}
