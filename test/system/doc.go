// Package system tests the shim as a whole, on a private containerd: every test runs containers
// through ctr or crictl, and most of them on runc first, whose output and exit code ours must equal.
//
// The tests are built with the tag system, want root, and are run by make system. RUNTIME names
// another runtime to test than ours; with io.containerd.runc.v2 the tests test themselves. Tests
// that cannot pass are named in ../SKIPS.md with the reason.
package system
