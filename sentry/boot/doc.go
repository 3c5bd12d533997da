// Package boot puts the Sentry together: it isolates the sandbox process,
// makes the platform, the kernel and the file systems, builds containers from
// OCI specs and answers the shim's control calls.
//
// It is the only package that imports all others; cmd starts it.
package boot
