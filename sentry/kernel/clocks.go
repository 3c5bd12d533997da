package kernel

// ClocksRead is called after a system call returned the time of a clock: the
// vDSO's clocks, which may lag a little, are brought up to it.
func (k *Kernel) ClocksRead() {
	if k.cfg.VDSO != nil {
		k.cfg.VDSO.Refresh()
	}
}
