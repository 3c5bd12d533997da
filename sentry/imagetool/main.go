package imagetool

import (
	"flag"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"runsc/pkg/imagefmt"
)

const usage = `usage: image inspect DIR [--json]   show what is in a checkpoint image
       image verify DIR           check every checksum of a checkpoint image
`

// Main runs the command with the arguments after the word "image". What is
// wrong with an image is one sentence on standard error.
func Main(args []string) int { return run(args, os.Stdout, os.Stderr) }

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return 2
	}
	fs := flag.NewFlagSet("image "+args[0], flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	asJSON := fs.Bool("json", false, "print JSON")
	dirs, err := parse(fs, args[1:])
	if err != nil || len(dirs) != 1 {
		fmt.Fprint(stderr, usage)
		return 2
	}
	switch args[0] {
	case "inspect":
		err = inspect(dirs[0], *asJSON, stdout)
	case "verify":
		err = verify(dirs[0], stdout)
	default:
		fmt.Fprint(stderr, usage)
		return 2
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

// parse accepts flags before and after the other arguments.
func parse(fs *flag.FlagSet, args []string) ([]string, error) {
	var rest []string
	for {
		if err := fs.Parse(args); err != nil {
			return nil, err
		}
		if fs.NArg() == 0 {
			return rest, nil
		}
		rest = append(rest, fs.Arg(0))
		args = fs.Args()[1:]
	}
}

// open opens and checks the image in a directory.
func open(path string) (*imagefmt.Opened, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", path, err)
	}
	dir := os.NewFile(uintptr(fd), path)
	defer dir.Close()
	return imagefmt.OpenIn(dir)
}

// wrong says what is wrong with a part of an image, in a sentence.
func wrong(path string, err error) error { return fmt.Errorf("image %s: %w", path, err) }
