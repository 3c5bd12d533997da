package shim

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	cgroup1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	cgroup2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"runsc/pkg/controlapi"
)

// answerPatience bounds what a call for figures waits for the Sentry:
// containerd gives such calls 2 seconds.
const answerPatience = time.Second

// Pids lists the live processes. Init and exec'd processes have the host pids
// that Create and Start returned; the others, which are no host processes,
// have the pod's pids.
func (s *service) Pids(ctx context.Context, r *taskapi.PidsRequest) (*taskapi.PidsResponse, error) {
	c, err := s.get(r.ID)
	if err != nil {
		return nil, toGRPC(err)
	}
	c.mu.Lock()
	state, pid := c.init.state, c.init.pid
	c.mu.Unlock()
	resp := &taskapi.PidsResponse{}
	if state == stateStopped || state == stateDeleted {
		return resp, nil
	}
	var procs []controlapi.Process
	if state != stateCreated {
		qctx, cancel := context.WithTimeout(ctx, answerPatience)
		defer cancel()
		if procs, err = c.sb.client.Pids(qctx, c.id); err != nil {
			slog.Debug("pids", "container", c.id, "err", err)
		}
	}
	if len(procs) == 0 {
		// A live task with no pid would be deleted by a restarting containerd.
		procs = []controlapi.Process{{Init: true}}
	}
	for _, p := range procs {
		info := &task.ProcessInfo{Pid: uint32(p.Pid)}
		switch {
		case p.Init:
			info.Pid = uint32(pid)
		case p.ExecID != "":
			c.mu.Lock()
			if e := c.execs[p.ExecID]; e != nil && e.pid != 0 {
				info.Pid = uint32(e.pid)
			}
			c.mu.Unlock()
			if info.Info, err = anyOf(&runcoptions.ProcessDetails{ExecID: p.ExecID}); err != nil {
				return nil, toGRPC(err)
			}
		}
		resp.Processes = append(resp.Processes, info)
	}
	return resp, nil
}

// anyOf wraps a message as typeurl does, by its bare name.
func anyOf(m proto.Message) (*anypb.Any, error) {
	body, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	return &anypb.Any{TypeUrl: string(m.ProtoReflect().Descriptor().FullName()), Value: body}, nil
}

// Stats returns a task's figures: CPU and memory of its cgroup, memory, tasks
// and OOM kills of the Sentry. It answers until the task is deleted: after an
// end for lack of memory the counter tells of it.
func (s *service) Stats(ctx context.Context, r *taskapi.StatsRequest) (*taskapi.StatsResponse, error) {
	c, err := s.get(r.ID)
	if err != nil {
		return nil, toGRPC(err)
	}
	metrics, err := c.cgroup.Stat()
	if err != nil {
		return nil, toGRPC(fail(errdefs.ErrNotFound, "cgroup of %s: %v", c.what(), err))
	}
	guest := &controlapi.StatsResponse{}
	if c.live() {
		qctx, cancel := context.WithTimeout(ctx, answerPatience)
		defer cancel()
		if g, err := c.sb.client.Stats(qctx, c.id); err == nil {
			guest = g
		}
	}
	c.mu.Lock()
	ooms := max(c.ooms, guest.OOMKills)
	limits := c.limits
	c.mu.Unlock()
	var m proto.Message
	switch v := metrics.(type) {
	case *cgroup1.Metrics:
		fillV1(v, guest, limits, ooms)
		m = v
	case *cgroup2.Metrics:
		fillV2(v, guest, limits, ooms)
		m = v
	default:
		return nil, toGRPC(fmt.Errorf("unknown figures %T", metrics))
	}
	stats, err := anyOf(m)
	if err != nil {
		return nil, toGRPC(err)
	}
	return &taskapi.StatsResponse{Stats: stats}, nil
}

// memoryUsage is the larger of what the cgroup and the Sentry count: guest
// pages are charged to whichever host process touched them first, which for an
// app container may be the Sentry, in another cgroup.
func memoryUsage(cgroup uint64, guest *controlapi.StatsResponse) uint64 {
	return max(cgroup, uint64(max(guest.MemoryBytes, 0)))
}

func fillV1(m *cgroup1.Metrics, guest *controlapi.StatsResponse, limits controlapi.Limits, ooms uint64) {
	// containerd's metrics take these for granted.
	if m.CPU == nil {
		m.CPU = &cgroup1.CPUStat{}
	}
	if m.CPU.Usage == nil {
		m.CPU.Usage = &cgroup1.CPUUsage{}
	}
	if m.CPU.Throttling == nil {
		m.CPU.Throttling = &cgroup1.Throttle{}
	}
	if m.Memory == nil {
		m.Memory = &cgroup1.MemoryStat{}
	}
	if m.Memory.Usage == nil {
		m.Memory.Usage = &cgroup1.MemoryEntry{}
	}
	u := m.Memory.Usage
	u.Usage = memoryUsage(u.Usage, guest)
	u.Max = max(u.Max, uint64(max(guest.MemoryMaxBytes, 0)), u.Usage)
	if limits.MemoryBytes > 0 {
		u.Limit = uint64(limits.MemoryBytes)
	}
	m.Memory.TotalInactiveFile = max(m.Memory.TotalInactiveFile, uint64(max(guest.CacheBytes, 0)))
	m.Pids = &cgroup1.PidsStat{Current: uint64(max(guest.Tasks, 0)), Limit: uint64(limits.Pids)}
	if m.MemoryOomControl == nil {
		m.MemoryOomControl = &cgroup1.MemoryOomControl{}
	}
	m.MemoryOomControl.OomKill += ooms
}

func fillV2(m *cgroup2.Metrics, guest *controlapi.StatsResponse, limits controlapi.Limits, ooms uint64) {
	if m.CPU == nil {
		m.CPU = &cgroup2.CPUStat{}
	}
	if m.Memory == nil {
		m.Memory = &cgroup2.MemoryStat{}
	}
	m.Memory.Usage = memoryUsage(m.Memory.Usage, guest)
	if limits.MemoryBytes > 0 {
		m.Memory.UsageLimit = uint64(limits.MemoryBytes)
	}
	m.Memory.InactiveFile = max(m.Memory.InactiveFile, uint64(max(guest.CacheBytes, 0)))
	m.Pids = &cgroup2.PidsStat{Current: uint64(max(guest.Tasks, 0)), Limit: uint64(limits.Pids)}
	if m.MemoryEvents == nil {
		m.MemoryEvents = &cgroup2.MemoryEvents{}
	}
	m.MemoryEvents.OomKill += ooms
}

// Update changes a task's limits.
func (s *service) Update(ctx context.Context, r *taskapi.UpdateTaskRequest) (*emptypb.Empty, error) {
	c, err := s.get(r.ID)
	if err != nil {
		return nil, toGRPC(err)
	}
	if err := c.update(ctx, r.Resources); err != nil {
		return nil, toGRPC(err)
	}
	return empty, nil
}

func (c *container) update(ctx context.Context, resources *anypb.Any) error {
	var res specs.LinuxResources
	if err := json.Unmarshal(resources.GetValue(), &res); err != nil {
		return fail(errdefs.ErrInvalidArgument, "resources: %v", err)
	}
	if err := validateResources(&res); err != nil {
		return fail(errdefs.ErrInvalidArgument, "%v", err)
	}
	c.op.Lock()
	defer c.op.Unlock()
	c.mu.Lock()
	err := c.init.state.check(opUpdate, c.what())
	limits := c.limits
	c.mu.Unlock()
	if err != nil {
		return err
	}
	old := limits
	if m := res.Memory; m != nil && m.Limit != nil {
		limits.MemoryBytes = max(*m.Limit, 0)
	}
	if p := res.Pids; p != nil && p.Limit != nil {
		limits.Pids = max(*p.Limit, 0)
	}
	if limits != old {
		if err := c.sb.client.Update(ctx, &controlapi.UpdateRequest{ID: c.id, Limits: limits}); err != nil {
			return fmt.Errorf("update %s: %w", c.what(), fromSentry(err))
		}
	}
	if err := c.cgroup.Update(&res); err != nil {
		return fmt.Errorf("cgroup of %s: %w", c.what(), err)
	}
	c.mu.Lock()
	c.limits = limits
	c.mu.Unlock()
	return nil
}
