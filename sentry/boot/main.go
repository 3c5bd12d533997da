package boot

import (
	"fmt"
	"os"
)

// Main runs the sandbox process and returns its exit code. Args are the
// arguments after "sandbox".
func Main(args []string) int {
	fmt.Fprintln(os.Stderr, "the sandbox is not built in")
	return 1
}
