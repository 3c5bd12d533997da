package gofer

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// inUserns is set in the environment of the other tests.
const inUserns = "GOFER_TEST_USERNS"

// TestInUserNamespace runs the other tests as the Sentry runs: root of an
// identity-mapped user namespace, without capabilities outside.
func TestInUserNamespace(t *testing.T) {
	if os.Getuid() != 0 || os.Getenv(inUserns) != "" {
		t.Skip("needs root outside the namespace")
	}
	ids := []syscall.SysProcIDMap{{Size: 1<<32 - 1}}
	cmd := exec.Command("/proc/self/exe", "-test.run=^Test", "-test.short")
	cmd.Env = append(os.Environ(), inUserns+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true,
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
