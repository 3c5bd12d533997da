package shim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/v2/core/mount"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runsc/pkg/hostcgroup"
)

// containerd gives delete 5 seconds.
const (
	askDaemon   = 2 * time.Second
	waitForKill = 2 * time.Second
)

// remove is the delete action: it undoes whatever is left of one container,
// from what the bundle says, and prints how its init ended. It may run again
// and again, and at the same time for other containers of the group.
func remove(f *flags) error {
	bundle := f.bundle
	if bundle == "" {
		wd, err := os.Getwd()
		if err != nil {
			return err
		}
		bundle = wd
	}
	resp := &taskapi.DeleteResponse{ExitStatus: statusKilled, ExitedAt: timestamppb.Now()}
	var rec record
	err := readJSON(bundle, recordFile, &rec)
	switch {
	case errors.Is(err, os.ErrNotExist):
		// Create did not get far, or the sandbox API made the bundle: nothing
		// but a mount can be there.
		err = unmountRootfs(bundle)
	case err != nil:
	case rec.Clean:
	default:
		err = clean(f, bundle, &rec)
	}
	var exit exitRecord
	if readJSON(bundle, exitFile, &exit) == nil {
		resp.Pid = uint32(exit.Pid)
		resp.ExitStatus = uint32(exit.Status)
		resp.ExitedAt = timestamppb.New(exit.At)
	}
	if err != nil {
		return err
	}
	data, err := proto.Marshal(resp)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(data)
	return err
}

// clean undoes a container: by its daemon if that lives, and by hand.
func clean(f *flags, bundle string, rec *record) error {
	if rec.ID != f.id {
		return fmt.Errorf("%s is of container %q", recordFile, rec.ID)
	}
	if rec.Shim.alive() && askToDelete(rec) == nil {
		var now record
		if readJSON(bundle, recordFile, &now) == nil && now.Clean {
			return nil
		}
	}
	if rec.Root && !rec.Shim.alive() {
		// The daemon's children die with it; its socket does not.
		removeSocket(rec.Address)
	}
	var errs []error
	if rec.Root {
		// All of the group: the sandbox's pid namespace dies with its init.
		errs = append(errs, rec.Sandbox.kill(waitForKill), rec.Gofer.kill(waitForKill))
	}
	errs = append(errs, unmountRootfs(bundle))
	if rec.OwnsCgroup && rec.Cgroup != "" {
		errs = append(errs, removeCgroup(rec.Cgroup))
	}
	return errors.Join(errs...)
}

// askToDelete has the daemon kill and delete the container.
func askToDelete(rec *record) error {
	ctx, cancel := context.WithTimeout(context.Background(), askDaemon)
	defer cancel()
	task, closeConn, err := dialTask(ctx, rec.Address)
	if err != nil {
		return err
	}
	defer closeConn()
	// Errors are those of a task that has ended or is not known.
	task.Kill(ctx, &taskapi.KillRequest{ID: rec.ID, Signal: 9, All: true})
	task.Wait(ctx, &taskapi.WaitRequest{ID: rec.ID})
	_, err = task.Delete(ctx, &taskapi.DeleteRequest{ID: rec.ID})
	task.Shutdown(ctx, &taskapi.ShutdownRequest{ID: rec.ID})
	return err
}

func unmountRootfs(bundle string) error {
	path := rootfsOf(bundle)
	if err := mount.UnmountRecursive(path, 0); err != nil {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	return nil
}

// removeCgroup removes a cgroup. Processes of an app container die with their
// sandbox, at the latest when the group's root is deleted.
func removeCgroup(path string) error {
	g, err := hostcgroup.Load(path)
	if err != nil {
		return nil
	}
	deadline := time.Now().Add(waitForKill)
	for {
		err := g.Delete()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}
