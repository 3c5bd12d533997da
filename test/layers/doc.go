// Package layers holds the order of the packages, layers.txt, and the test that every import keeps
// to it.
package layers
