package syscalls

// Args are the six argument registers of a system call, as the guest left
// them. The accessors take a register in the width of the C prototype: upper
// halves of int arguments are garbage by the ABI and are dropped.
type Args [6]uint64

// Int returns argument i as a C int.
func (a Args) Int(i int) int32 { return int32(a[i]) }

// Uint returns argument i as an unsigned int.
func (a Args) Uint(i int) uint32 { return uint32(a[i]) }

// Int64 returns argument i as a long or loff_t.
func (a Args) Int64(i int) int64 { return int64(a[i]) }

// Uint64 returns argument i as an unsigned long.
func (a Args) Uint64(i int) uint64 { return a[i] }

// Addr returns argument i as a guest address.
func (a Args) Addr(i int) uint64 { return a[i] }

// Size returns argument i as a size_t.
func (a Args) Size(i int) uint64 { return a[i] }
