// Package ksync has the mutexes of the Sentry. They are those of package sync,
// by alias, but in a build with the tag lockrank: then they know their name
// in sentry/LOCKS and check, at each Lock, that the goroutine takes locks in
// an order that fits that file and everything seen so far.
//
// The kernel package names its locks with Rank; tests load the file with
// Declare. It does what Linux's lockdep does, for names instead of call sites.
package ksync
