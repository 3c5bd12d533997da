package kernel

import (
	"cmp"
	"slices"
)

// sortBy sorts s by a number of its elements.
func sortBy[T any](s []T, key func(T) int32) {
	slices.SortFunc(s, func(a, b T) int { return cmp.Compare(key(a), key(b)) })
}
