// Package gofer is the gofer process: it opens host files for the Sentry from
// the mount trees that the shim sends it.
package gofer
