// Package boot is the sandbox process: it starts the kernel and serves the
// control channel.
package boot
