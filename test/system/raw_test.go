//go:build system

package system

import (
	"context"
	"testing"
	"time"

	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	options "github.com/containerd/containerd/api/types/runc/options"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"runsc/pkg/imagefmt"
	"runsc/test/rig"
)

// TestCheckpointRunning saves through the task service without pausing the task, as ctr always does: it stands still
// for the cut alone, however much memory it has.
func TestCheckpointRunning(t *testing.T) {
	begin(t)
	conn, err := grpc.NewClient("unix://"+R.Socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(context.Background(), "containerd-namespace", R.Namespace), 30*time.Second)
	defer cancel()
	p := newPlace(t)
	id := detached(t, rig.Container{Flags: p.flags, Args: sh("head -c 100000000 /dev/urandom > /dev/shm/f; head -c 60000000 /dev/urandom > /root/f; " + counting)})
	n := counts(t, id, 0)
	res, err := tasks.NewTasksClient(conn).Checkpoint(ctx, &tasks.CheckpointTaskRequest{ContainerID: id})
	if err != nil {
		t.Fatal(err)
	}
	counts(t, id, n)
	for _, d := range res.Descriptors {
		t.Logf("%s, %d bytes", d.MediaType, d.Size)
	}
	// The store has it as an archive; the manifest's pause is that of the same save into a directory.
	R.Ctr("content", "rm", res.Descriptors[0].Digest)
	for _, dir := range []string{p.img(1), p.img(2)} {
		opts, err := checkpointInto(dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tasks.NewTasksClient(conn).Checkpoint(ctx, &tasks.CheckpointTaskRequest{ContainerID: id, Options: opts}); err != nil {
			t.Fatal(err)
		}
		n = counts(t, id, n)
		m := manifest(t, dir)
		pause := time.Duration(m.PauseNanos)
		t.Logf("%d pages, pause %v", m.Pages, pause)
		if m.Pages*4096 < 100000000 || m.Files[imagefmt.PagesFile].Size < 100000000 {
			t.Errorf("only %d pages", m.Pages)
		}
		// A quarter of a second is much, but the machine may be busy; writing the pages takes longer.
		if pause <= 0 || pause > 250*time.Millisecond {
			t.Errorf("the task stood still for %v", pause)
		}
	}
}

// checkpointInto is the options of a checkpoint into a directory.
func checkpointInto(dir string) (*anypb.Any, error) {
	data, err := proto.Marshal(&options.CheckpointOptions{ImagePath: dir})
	return &anypb.Any{TypeUrl: "containerd.runc.v1.CheckpointOptions", Value: data}, err
}

// saveInto saves a container into a directory through the task service, which does nothing else.
func saveInto(t *testing.T, id, dir string) {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+R.Socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(context.Background(), "containerd-namespace", R.Namespace), 30*time.Second)
	defer cancel()
	opts, err := checkpointInto(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tasks.NewTasksClient(conn).Checkpoint(ctx, &tasks.CheckpointTaskRequest{ContainerID: id, Options: opts}); err != nil {
		t.Fatal(err)
	}
}
