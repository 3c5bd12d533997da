// Package cgroup is the cgroup2 file system (Linux's
// Documentation/admin-guide/cgroup-v2.rst) as a container sees it: its own
// cgroup as the root, with the limits and the usage that the Sentry keeps.
// Limits cannot be written and no cgroup made.
package cgroup
