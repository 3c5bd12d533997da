package shim

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxOOMScore is OOM_SCORE_ADJ_MAX.
const maxOOMScore = 1000

func readOOMScore(pid int) (int, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(data)))
}

// setOOMScore writes a process's oom_score_adj. Lowering needs
// CAP_SYS_RESOURCE; without it the old score stays, which is no error.
func setOOMScore(pid, score int) error {
	err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(strconv.Itoa(score)), 0)
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		if old, rerr := readOOMScore(pid); rerr == nil && old > score {
			return nil
		}
	}
	return err
}

// adjustDaemonOOMScore makes the daemon a likelier victim than containerd, its
// parent, by one: containerd can be restarted without it, not the reverse.
func adjustDaemonOOMScore(pid int) error {
	parent, err := readOOMScore(os.Getppid())
	if err != nil {
		return err
	}
	return setOOMScore(pid, min(parent+1, maxOOMScore))
}
