package hostcgroup

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"github.com/containerd/cgroups/v3/cgroup1"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

type groupV1 struct {
	path string
	cg   cgroup1.Cgroup
}

// needed lists the controllers that a container's limits and figures need. The
// others stay out of it: each is one more directory to make, one more move of
// every process (which waits for all CPUs) and one more thing to remove.
func needed(res *specs.LinuxResources) map[cgroup1.Name]bool {
	n := map[cgroup1.Name]bool{cgroup1.Memory: true, cgroup1.Cpu: true, cgroup1.Cpuacct: true}
	if res.CPU != nil && (res.CPU.Cpus != "" || res.CPU.Mems != "") {
		n[cgroup1.Cpuset] = true
	}
	if res.BlockIO != nil {
		n[cgroup1.Blkio] = true
	}
	if len(res.HugepageLimits) > 0 {
		n[cgroup1.Hugetlb] = true
	}
	if res.Network != nil {
		n[cgroup1.NetCLS] = res.Network.ClassID != nil
		n[cgroup1.NetPrio] = len(res.Network.Priorities) > 0
	}
	if len(res.Rdma) > 0 {
		n[cgroup1.Rdma] = true
	}
	return n
}

// only returns the default hierarchy reduced to the needed controllers.
func only(n map[cgroup1.Name]bool) cgroup1.InitOpts {
	return cgroup1.WithHierarchy(func() ([]cgroup1.Subsystem, error) {
		all, err := cgroup1.Default()
		if err != nil {
			return nil, err
		}
		var out []cgroup1.Subsystem
		for _, s := range all {
			if n == nil || n[s.Name()] {
				out = append(out, s)
			}
		}
		return out, nil
	})
}

func newV1(path string, res *specs.LinuxResources) (Group, error) {
	cg, err := cgroup1.New(cgroup1.StaticPath(path), res, only(needed(res)))
	if err != nil {
		return nil, err
	}
	return &groupV1{path: path, cg: cg}, nil
}

func loadV1(path string) (Group, error) {
	cg, err := cgroup1.Load(cgroup1.StaticPath(path), only(nil))
	if err != nil {
		return nil, err
	}
	return &groupV1{path: path, cg: cg}, nil
}

func (g *groupV1) Path() string { return g.path }

// Add moves a process. Controllers that share a mount (cpu,cpuacct) are
// written once: every move waits for a grace period on all CPUs.
func (g *groupV1) Add(pid int) error {
	seen := map[string]bool{}
	for _, s := range g.cg.Subsystems() {
		p, ok := s.(interface{ Path(string) string })
		if !ok {
			continue
		}
		dir := p.Path(g.path)
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			dir = real
		}
		if seen[dir] {
			continue
		}
		seen[dir] = true
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			return err
		}
	}
	return nil
}

func (g *groupV1) Stat() (any, error) { return g.cg.Stat(cgroup1.IgnoreNotExist) }

func (g *groupV1) Update(res *specs.LinuxResources) error { return g.cg.Update(hostLimits(res)) }

func (g *groupV1) Delete() error {
	if err := g.cg.Delete(); err != nil && !errors.Is(err, cgroup1.ErrCgroupDeleted) {
		return err
	}
	return nil
}
