// Package sys is the sys file system (sysfs(5)), as far as programs look at it
// in a container: CPU topology, one memory node, a loopback device, empty
// classes.
//
// All of it is computed from the number of CPUs that the guest sees; nothing
// shows the host's devices. The tree is package level data, so that a mount
// costs nothing, however many CPUs there are.
package sys
