package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"time"

	"runsc/test/rig"
)

// target is one place to run guest programs in.
type target struct {
	name string // native, runc, gvisor or ours
	how  string
	run  func(timeout time.Duration, args ...string) rig.Result
}

// allTargets lists those that this host has. done removes what they needed.
func allTargets(r *rig.Rig) (targets []target, done func(), err error) {
	tools, err := rig.Tools()
	if err != nil {
		return nil, nil, err
	}
	done = func() {}
	targets = []target{
		{"native", "on the host", func(timeout time.Duration, args ...string) rig.Result {
			if name, ok := strings.CutPrefix(args[0], "/guest/"); ok {
				args[0] = filepath.Join(tools, "guest", name)
			}
			return run(timeout, args)
		}},
		ctrTarget(r, "runc", rig.Runc),
	}
	peer := filepath.Join(tools, "bin", "runsc")
	if _, err := os.Stat(peer); err == nil {
		t, unmount, err := peerTarget(r, peer)
		if err != nil {
			return nil, nil, err
		}
		targets, done = append(targets, t), unmount
	}
	return append(targets, ctrTarget(r, "ours", rig.Runsc)), done, nil
}

func ctrTarget(r *rig.Rig, name, runtime string) target {
	return target{name, "ctr run --rm --runtime " + runtime, func(timeout time.Duration, args ...string) rig.Result {
		return r.Run(rig.Container{Runtime: runtime, Image: rig.Guest, Args: args, Timeout: timeout})
	}}
}

// peerFlags are those that gVisor's runsc needs to start without cgroups and network of its own.
func peerFlags(r *rig.Rig) []string {
	return []string{"--root", filepath.Join(r.Dir, "w", "peer"), "--ignore-cgroups", "--network=none"}
}

// peerTarget prepares a bundle of the guest image for gVisor's runsc.
func peerTarget(r *rig.Rig, runsc string) (target, func(), error) {
	rootfs, unmount, err := r.MountImage(rig.Guest)
	if err != nil {
		return target{}, nil, err
	}
	t := target{"gvisor", "runsc run, without containerd", func(timeout time.Duration, args ...string) rig.Result {
		id := r.NewID()
		bundle, err := peerBundle(r, rootfs, id, args)
		if err != nil {
			return rig.Result{Code: -1, Stderr: err.Error()}
		}
		cmd := append([]string{runsc}, peerFlags(r)...)
		return run(timeout, append(cmd, "run", "--bundle", bundle, id))
	}}
	return t, unmount, nil
}

// peerBundle writes a bundle whose spec is ctr's own with another command.
func peerBundle(r *rig.Rig, rootfs, id string, args []string) (string, error) {
	spec, err := r.Spec(rig.Container{Runtime: rig.Runc, Image: rig.Guest, Args: args})
	if err != nil {
		return "", err
	}
	return writeBundle(r, rootfs, id, spec)
}

// writeBundle writes a bundle with a spec, whose root it changes.
func writeBundle(r *rig.Rig, rootfs, id string, spec map[string]any) (string, error) {
	spec["root"] = map[string]any{"path": rootfs}
	data, err := json.Marshal(spec)
	if err != nil {
		return "", err
	}
	bundle := filepath.Join(r.Dir, "w", "bundle-"+id)
	if err := os.Mkdir(bundle, 0o755); err != nil {
		return "", err
	}
	return bundle, os.WriteFile(filepath.Join(bundle, "config.json"), data, 0o644)
}
