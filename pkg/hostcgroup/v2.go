package hostcgroup

import (
	"errors"
	"os"

	"github.com/containerd/cgroups/v3/cgroup2"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

const v2Root = "/sys/fs/cgroup"

type groupV2 struct {
	path string
	m    *cgroup2.Manager
}

func newV2(path string, res *specs.LinuxResources) (Group, error) {
	r := cgroup2.ToResources(res)
	for key, value := range res.Unified {
		if err := checkUnified(key, value); err != nil {
			return nil, err
		}
	}
	m, err := cgroup2.NewManager(v2Root, path, r)
	if err != nil {
		return nil, err
	}
	g := &groupV2{path: path, m: m}
	if err := g.writeUnified(res.Unified); err != nil {
		m.Delete()
		return nil, err
	}
	return g, nil
}

func loadV2(path string) (Group, error) {
	if _, err := os.Stat(v2Root + path); err != nil {
		return nil, err
	}
	m, err := cgroup2.Load(path)
	if err != nil {
		return nil, err
	}
	return &groupV2{path: path, m: m}, nil
}

func (g *groupV2) Path() string { return g.path }

func (g *groupV2) Add(pid int) error { return g.m.AddProc(uint64(pid)) }

func (g *groupV2) Stat() (any, error) { return g.m.Stat() }

func (g *groupV2) Update(res *specs.LinuxResources) error {
	if err := g.m.Update(cgroup2.ToResources(hostLimits(res))); err != nil {
		return err
	}
	return g.writeUnified(res.Unified)
}

func (g *groupV2) Delete() error {
	if err := g.m.Delete(); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
