// Command containerd-shim-runsc-v1 is the runtime io.containerd.runsc.v1: by
// its first argument the sandbox, the gofer, the tool for checkpoint images, or
// else containerd's shim.
package main

import (
	"os"

	"runsc/gofer"
	"runsc/sentry/boot"
	"runsc/sentry/imagetool"
	"runsc/shim"
)

func main() {
	args := os.Args[1:]
	if len(args) > 0 {
		switch args[0] {
		case "sandbox":
			os.Exit(boot.Isolate(args[1:]))
		case boot.Isolated:
			os.Exit(boot.Main(args[1:]))
		case "gofer":
			os.Exit(gofer.Isolate(args[1:]))
		case gofer.Isolated:
			os.Exit(gofer.Main(args[1:]))
		case "image":
			os.Exit(imagetool.Main(args[1:]))
		}
	}
	os.Exit(shim.Main(args))
}
