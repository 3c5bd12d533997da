// Package hostcgroup puts host processes into cgroups, v1 or v2 as the host
// has them, with the limits of an OCI spec.
//
// The limits are a backstop: the Sentry enforces a container's memory and pids
// limits on guest tasks itself, so the cgroup's memory limit gets headroom for
// the Sentry's own memory and pids.max is not written at all (host threads
// that serve guests must not eat a guest's limit).
package hostcgroup
