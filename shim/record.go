package shim

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Files in a bundle.
const (
	recordFile = "record.json"
	exitFile   = "exit.json"
)

// hostProcess names a process so that a recycled pid is not mistaken for it.
type hostProcess struct {
	Pid int `json:"pid"`
	// StartTime is field 22 of /proc/pid/stat, in clock ticks since boot.
	StartTime uint64 `json:"startTime"`
}

// record is what the delete action needs to know of a container. Every field
// is written before the thing that it names is made.
type record struct {
	ID        string `json:"id"`
	SandboxID string `json:"sandboxID"`
	// Root is set for the container whose end ends the sandbox.
	Root bool `json:"root,omitempty"`
	// Address is the daemon's socket.
	Address string      `json:"address"`
	Shim    hostProcess `json:"shim"`
	// Sandbox and Gofer are set for the root container only.
	Sandbox hostProcess `json:"sandbox"`
	Gofer   hostProcess `json:"gofer"`
	// Cgroup is removed with the container if OwnsCgroup is set.
	Cgroup     string `json:"cgroup,omitempty"`
	OwnsCgroup bool   `json:"ownsCgroup,omitempty"`
	// Clean is set by the daemon's own Delete: nothing is left to undo.
	Clean bool `json:"clean,omitempty"`
}

// exitRecord is the end of a container's init.
type exitRecord struct {
	Pid    int       `json:"pid"`
	Status int       `json:"status"`
	At     time.Time `json:"at"`
}

// writeJSON replaces a file in a bundle by renaming a complete one over it.
func writeJSON(dir, name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, "."+name)
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, name))
}

func readJSON(dir, name string, v any) error {
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
	}
	return nil
}

// identify returns the identity of a live process.
func identify(pid int) (hostProcess, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return hostProcess{}, err
	}
	// The command, in parentheses, may contain anything.
	i := strings.LastIndexByte(string(data), ')')
	fields := strings.Fields(string(data[i+1:]))
	if i < 0 || len(fields) < 20 {
		return hostProcess{}, fmt.Errorf("/proc/%d/stat: cannot parse", pid)
	}
	start, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return hostProcess{}, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	return hostProcess{Pid: pid, StartTime: start}, nil
}

// open returns a pidfd of the process, or an error if it has ended.
func (p hostProcess) open() (int, error) {
	if p.Pid <= 0 {
		return -1, unix.ESRCH
	}
	fd, err := unix.PidfdOpen(p.Pid, 0)
	if err != nil {
		return -1, err
	}
	// The pidfd names whatever had the pid when it was opened.
	if now, err := identify(p.Pid); err != nil || now != p {
		unix.Close(fd)
		return -1, unix.ESRCH
	}
	// A process that has ended but was not reaped yet still has its pid.
	if n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0); n > 0 {
		unix.Close(fd)
		return -1, unix.ESRCH
	}
	return fd, nil
}

func (p hostProcess) alive() bool {
	fd, err := p.open()
	if err != nil {
		return false
	}
	unix.Close(fd)
	return true
}

// kill ends the process with SIGKILL and waits until it has ended, with all
// threads gone. It is no error if it has ended before.
func (p hostProcess) kill(patience time.Duration) error {
	fd, err := p.open()
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && err != unix.ESRCH {
		return fmt.Errorf("kill %d: %w", p.Pid, err)
	}
	deadline := time.Now().Add(patience)
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return fmt.Errorf("process %d does not end", p.Pid)
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		if n > 0 {
			return nil
		}
		if err != nil && err != unix.EINTR {
			return fmt.Errorf("wait for %d: %w", p.Pid, err)
		}
	}
}
