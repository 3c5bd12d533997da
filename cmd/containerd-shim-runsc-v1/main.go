// Command containerd-shim-runsc-v1 is the runtime io.containerd.runsc.v1: by
// its first argument the sandbox, the gofer, or else containerd's shim.
package main

import (
	"os"

	"runsc/gofer"
	"runsc/sentry/boot"
	"runsc/shim"
)

func main() {
	args := os.Args[1:]
	if len(args) > 0 {
		switch args[0] {
		case "sandbox":
			os.Exit(boot.Main(args[1:]))
		case "gofer":
			os.Exit(gofer.Main(args[1:]))
		}
	}
	os.Exit(shim.Main(args))
}
