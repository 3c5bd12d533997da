// Package repo holds the tests of the repository itself: package docs, file lengths, where unsafe may
// stand, formatting, go.mod, and the list of skipped tests.
package repo
