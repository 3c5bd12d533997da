package kernel_test

import (
	"fmt"
	"os"
	"testing"

	"runsc/pkg/ksync"
)

// TestMain loads the order of locks, which a build with -tags lockrank checks
// in every test.
func TestMain(m *testing.M) {
	b, err := os.ReadFile("../LOCKS")
	if err == nil {
		err = ksync.Declare(string(b))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
