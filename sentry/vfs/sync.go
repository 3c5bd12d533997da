package vfs

// Sync writes back every file system of the namespace (sync(2)).
func (ns *Namespace) Sync(c Caller) {
	var all []*Mount
	mounts.RLock()
	ns.root.eachLocked(func(m *Mount) {
		m.IncRef()
		all = append(all, m)
	})
	mounts.RUnlock()
	for _, m := range all {
		_ = m.sb.fs.Sync(c) // sync(2) reports nothing
		m.DecRef()
	}
}
