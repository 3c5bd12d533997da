// Package segset is an ordered map from disjoint ranges of uint64 to values:
// the vmas and pages of an address space, the extents of a file.
package segset
