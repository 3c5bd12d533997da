package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"runsc/test/rig"
)

const script = `echo "hello from $(uname -s), pid $$, on host $(hostname)"
echo "processes here:"; ps -o pid,comm
echo "root file system:"; ls /
(sleep 0.1; echo "a background job ends") & wait
seq 1000 | awk '{ s += $1 } END { print "the sum of 1 to 1000 is", s }'`

func main() {
	if err := demo(); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func demo() (err error) {
	// An interrupted demo cleans up too: the command it waits for ends at the same signal.
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	start := time.Now()
	r, err := rig.Start(rig.Busybox)
	if err != nil {
		return err
	}
	defer func() {
		left := r.Leftovers(nil)
		err = errors.Join(err, r.Close())
		if len(left) > 0 {
			err = errors.Join(err, fmt.Errorf("left behind by containers:\n%s", strings.Join(left, "\n")))
		}
		if err == nil {
			fmt.Println("\nremoved: no process, mount, cgroup or file is left")
		}
	}()
	fmt.Printf("private containerd in %s, image imported: %.2f s\n", r.Dir, time.Since(start).Seconds())
	steps := []struct {
		title string
		c     rig.Container
		code  int
	}{
		{"echo", rig.Container{Args: []string{"echo", "hi"}}, 0},
		{"a shell script", rig.Container{Args: []string{"sh", "-c", script}}, 0},
		{"an exit code", rig.Container{Args: []string{"sh", "-c", "exit 7"}}, 7},
		{"true, once more for its time", rig.Container{Args: []string{"true"}}, 0},
	}
	for _, s := range steps {
		s.c.Runtime = rig.Runsc
		fmt.Printf("\n--- %s: ctr run --rm --runtime %s %s\n", s.title, rig.Runsc, rig.Busybox)
		res := r.Run(s.c)
		fmt.Print(res.Stdout, res.Stderr)
		fmt.Printf("exit code %d after %.3f s\n", res.Code, res.Took.Seconds())
		select {
		case sig := <-interrupted:
			return fmt.Errorf("%v", sig)
		default:
		}
		if res.TimedOut || res.Code != s.code {
			return fmt.Errorf("want exit code %d; the log ends:\n%s", s.code, r.LogTail(20))
		}
	}
	return checkpoint(r)
}
