package hostcgroup

import (
	"fmt"
	"os"
	"path"
	"strings"

	"github.com/containerd/cgroups/v3"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// Group is one cgroup, in all hierarchies that it needs.
type Group interface {
	// Path is the cgroup's path below the root of each hierarchy.
	Path() string
	// Add moves a process into the group.
	Add(pid int) error
	// Stat returns *cgroup1/stats.Metrics or *cgroup2/stats.Metrics, after the
	// host's mode.
	Stat() (any, error)
	// Update sets the limits that are not nil.
	Update(res *specs.LinuxResources) error
	// Delete removes the group, which must have no processes. It is no error
	// if it does not exist.
	Delete() error
}

// Unified reports whether the host has cgroup v2 only.
func Unified() bool { return cgroups.Mode() == cgroups.Unified }

// New creates a cgroup with the limits of an OCI spec, which may be nil.
func New(path string, res *specs.LinuxResources) (Group, error) {
	if res == nil {
		res = &specs.LinuxResources{}
	}
	if Unified() {
		return newV2(path, hostLimits(res))
	}
	return newV1(path, hostLimits(res))
}

// Load returns an existing cgroup.
func Load(path string) (Group, error) {
	if Unified() {
		return loadV2(path)
	}
	return loadV1(path)
}

// headroom is what a memory limit grows by on the host: the Sentry's own
// memory, page tables and stubs are charged to the same cgroup as the guest.
const headroom = 128 << 20

// hostLimits returns the part of a spec's resources that goes to the host.
func hostLimits(res *specs.LinuxResources) *specs.LinuxResources {
	r := *res
	r.Pids = nil    // enforced by the Sentry
	r.Devices = nil // the guest has no host devices
	if res.Memory != nil {
		m := *res.Memory
		m.Limit = grown(m.Limit)
		m.Swap = grown(m.Swap)
		r.Memory = &m
	}
	return &r
}

func grown(limit *int64) *int64 {
	if limit == nil || *limit <= 0 {
		return limit
	}
	v := *limit + headroom
	if v < *limit { // overflow: no limit
		v = -1
	}
	return &v
}

// HostPath turns the cgroupsPath of a spec into a path below the hierarchies'
// roots. The systemd form "slice:prefix:name" names the same directories that
// systemd would use. An empty one gets a place by the container's id.
func HostPath(cgroupsPath, id string) (string, error) {
	switch {
	case cgroupsPath == "":
		return "/runsc/" + id, nil
	case strings.Contains(cgroupsPath, ":") && !strings.HasPrefix(cgroupsPath, "/"):
		parts := strings.SplitN(cgroupsPath, ":", 3)
		if len(parts) != 3 {
			return "", fmt.Errorf("linux.cgroupsPath %q is neither a path nor slice:prefix:name", cgroupsPath)
		}
		return systemdPath(parts[0], parts[1], parts[2])
	}
	// Clean of a rooted path cannot climb above the root.
	return path.Clean("/" + cgroupsPath), nil
}

// systemdPath expands a slice to its ancestors: a-b.slice lies in a.slice.
func systemdPath(slice, prefix, name string) (string, error) {
	if slice == "" {
		slice = "system.slice"
	}
	stem, ok := strings.CutSuffix(slice, ".slice")
	if !ok || strings.ContainsAny(slice, "/") || strings.ContainsAny(prefix+name, "/") {
		return "", fmt.Errorf("linux.cgroupsPath: %q is not a slice", slice)
	}
	dir := ""
	if stem != "-" {
		sofar := ""
		for part := range strings.SplitSeq(stem, "-") {
			if part == "" {
				return "", fmt.Errorf("linux.cgroupsPath: %q is not a slice", slice)
			}
			sofar += part
			dir += "/" + sofar + ".slice"
			sofar += "-"
		}
	}
	unit := name
	if !strings.HasSuffix(name, ".slice") {
		unit = name + ".scope"
		if prefix != "" {
			unit = prefix + "-" + unit
		}
	}
	return dir + "/" + unit, nil
}

// Busy reports whether a cgroup exists and has processes, in the hierarchy
// that tells best.
func Busy(path string) bool {
	dir := v2Root + path
	if !Unified() {
		dir = v2Root + "/memory" + path
	}
	data, err := os.ReadFile(dir + "/cgroup.procs")
	return err == nil && len(data) > 0
}

// Beside returns a path for a container whose own is taken: next to it. Below
// it the container would share the other's limits, be counted in its figures
// and keep it from being removed; with v2 a cgroup with processes can have no
// children with limits.
func Beside(path, id string) string { return path + "-" + id }
