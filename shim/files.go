package shim

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"

	"runsc/pkg/controlapi"
)

// fileList collects the descriptors of a control message.
type fileList struct {
	all   []*os.File
	owned []*os.File // closed by close
}

// add adds a borrowed file and returns its index.
func (l *fileList) add(f *os.File) int {
	if f == nil {
		return controlapi.NoFile
	}
	l.all = append(l.all, f)
	return len(l.all) - 1
}

// addOwned takes over a file.
func (l *fileList) addOwned(f *os.File) int {
	l.owned = append(l.owned, f)
	return l.add(f)
}

func (l *fileList) addStdio(p *procIO) controlapi.Stdio {
	return controlapi.Stdio{Stdin: l.add(p.guest[0]), Stdout: l.add(p.guest[1]), Stderr: l.add(p.guest[2])}
}

func (l *fileList) close() {
	for _, f := range l.owned {
		f.Close()
	}
}

// pidOfPidfd returns the pid of a pidfd, as /proc here counts.
func pidOfPidfd(f *os.File) (int, error) {
	info, err := os.Open(fmt.Sprintf("/proc/self/fdinfo/%d", f.Fd()))
	if err != nil {
		return 0, err
	}
	defer info.Close()
	for s := bufio.NewScanner(info); s.Scan(); {
		if v, ok := strings.CutPrefix(s.Text(), "Pid:"); ok {
			pid, err := strconv.Atoi(strings.TrimSpace(v))
			if err == nil && pid <= 0 {
				err = fmt.Errorf("pid %d: ended, or not visible here", pid)
			}
			return pid, err
		}
	}
	return 0, fmt.Errorf("not a pidfd")
}
