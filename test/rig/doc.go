// Package rig runs a private containerd for whole-system tests and benchmarks: its own root, state,
// sockets and temporary directory under one short path, the shim of this repository first in its
// PATH, and images made on this host. Several rigs may run at once, since all that a rig makes lies
// in its directory, in its own containerd namespace and in cgroups named after it; Leftovers lists
// what of that remains.
//
// build.sh builds what a rig needs and dev.sh starts one by hand.
package rig
