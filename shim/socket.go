package shim

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
)

// defaultSocketDir is containerd's, whatever its state directory is.
const defaultSocketDir = "/run/containerd/s"

// maxSocketPath is the size of sun_path less its terminator.
const maxSocketPath = 107

// socketAddress returns where the daemon of a group listens. The name is the
// one that containerd's own helpers make, so that its clean-up finds it.
func socketAddress(dir, containerd, namespace, group string) (string, error) {
	if dir == "" {
		dir = defaultSocketDir
	}
	sum := sha256.Sum256([]byte(filepath.Join(containerd, namespace, group)))
	path := fmt.Sprintf("%s/%x", dir, sum)
	if len(path) > maxSocketPath {
		return "", fmt.Errorf("socket path %s is longer than %d bytes: set a shorter socket_dir", path, maxSocketPath)
	}
	return "unix://" + path, nil
}

func socketPath(address string) string { return strings.TrimPrefix(address, "unix://") }

func removeSocket(address string) { os.Remove(socketPath(address)) }

// listen makes the daemon's socket, 0600 in a directory 0700.
func listen(address string) (*net.UnixListener, error) {
	path := socketPath(address)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		os.Remove(path)
		return nil, err
	}
	return l, nil
}

// answers reports whether a daemon serves at the address and will go on.
func answers(address string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	task, closeConn, err := dialTask(ctx, address)
	if err != nil {
		return false
	}
	defer closeConn()
	_, err = task.Connect(ctx, &taskapi.ConnectRequest{ID: "-"})
	return err == nil
}

// dialTask returns a client of a daemon's task API.
func dialTask(ctx context.Context, address string) (taskapi.TTRPCTaskService, func(), error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socketPath(address))
	if err != nil {
		return nil, nil, err
	}
	client := ttrpc.NewClient(conn)
	return taskapi.NewTTRPCTaskClient(client), func() { client.Close() }, nil
}

// claim returns a listener on the address, or nil if a daemon serves there. A
// socket left by a dead daemon is replaced; one of a daemon that is about to
// end is waited for.
func claim(address string) (*net.UnixListener, error) {
	const tries = 100
	for range tries {
		l, err := listen(address)
		if err == nil {
			return l, nil
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			return nil, err
		}
		if answers(address) {
			return nil, nil
		}
		// Listening still, though it does not answer: it is ending, and removes
		// its socket itself.
		if c, err := net.DialTimeout("unix", socketPath(address), 100*time.Millisecond); err == nil {
			c.Close()
			time.Sleep(10 * time.Millisecond)
			continue
		}
		removeSocket(address)
	}
	return nil, fmt.Errorf("socket %s: in use by a daemon that does not answer", address)
}
