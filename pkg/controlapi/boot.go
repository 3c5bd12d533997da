package controlapi

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// BootConfig is what the sandbox process is started with, before it knows any
// container.
type BootConfig struct {
	Version   int    `json:"version"`
	SandboxID string `json:"sandboxID"`
	// NumCPUs is the number of CPUs the guest sees; 0 means the host's.
	NumCPUs int `json:"numCPUs,omitempty"`
	// Debug raises the log level.
	Debug bool `json:"debug,omitempty"`
	// HostNetwork is set if the sandbox process sits in the host's network
	// namespace.
	HostNetwork bool `json:"hostNetwork,omitempty"`
	// Options are the keys of the config file that only the Sentry reads.
	Options map[string]string `json:"options,omitempty"`
}

// Boot is what OpenBoot returns.
type Boot struct {
	Config BootConfig
	// Control is the socket to the shim, for control.New.
	Control *os.File
	// Log takes the Sentry's log lines.
	Log *os.File
	// Gofer is the socket to the gofer process (fsproto).
	Gofer *os.File

	config *os.File
}

// WaitPlaced returns when the shim has put the process into its cgroup, which
// takes some milliseconds. Nothing may be cloned before: it would stay in the
// shim's. Large allocations should wait too.
func (b *Boot) WaitPlaced() error {
	defer b.config.Close()
	// The shim closes its end when it is done.
	n, err := b.config.Read(make([]byte, 1))
	if err != io.EOF {
		return fmt.Errorf("boot config: %d bytes too many, %v", n, err)
	}
	return nil
}

// maxBootConfig bounds the config that a sandbox process reads.
const maxBootConfig = 1 << 20

// EncodeBootConfig returns what OpenBoot reads from ConfigFD. The descriptor
// must stay open until the process is in its cgroup, see WaitPlaced.
func EncodeBootConfig(c *BootConfig) ([]byte, error) {
	body, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(body))), body...), nil
}

// Numbers of the descriptors that a sandbox process inherits.
const (
	ControlFD = 3 // socket to the shim
	ConfigFD  = 4 // BootConfig, then the end of the file when placed
	LogFD     = 5 // log lines
	GoferFD   = 6 // socket to the gofer
)

// OpenBoot reads what the shim gave the sandbox process: args are the
// arguments after the word "sandbox".
func OpenBoot(args []string) (*Boot, error) {
	fs := flag.NewFlagSet("sandbox", flag.ContinueOnError)
	control := fs.Int("control-fd", ControlFD, "socket to the shim")
	config := fs.Int("config-fd", ConfigFD, "boot configuration")
	log := fs.Int("log-fd", LogFD, "log")
	gofer := fs.Int("gofer-fd", GoferFD, "socket to the gofer")
	id := fs.String("id", "", "sandbox id, for the process list only")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	_ = *id
	cf := os.NewFile(uintptr(*config), "boot-config")
	if cf == nil {
		return nil, errors.New("boot config: bad descriptor")
	}
	// A length and so many bytes; the end of the file comes later.
	var head [4]byte
	if _, err := io.ReadFull(cf, head[:]); err != nil {
		return nil, fmt.Errorf("boot config: %w", err)
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n > maxBootConfig {
		return nil, fmt.Errorf("boot config of %d bytes", n)
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(cf, data); err != nil {
		return nil, fmt.Errorf("boot config: %w", err)
	}
	b := &Boot{
		Control: os.NewFile(uintptr(*control), "control"),
		Log:     os.NewFile(uintptr(*log), "log"),
		Gofer:   os.NewFile(uintptr(*gofer), "gofer"),
		config:  cf,
	}
	// Descriptors given by number are not close-on-exec; nothing that the
	// sandbox starts may inherit them.
	for _, fd := range []int{*control, *config, *log, *gofer} {
		unix.CloseOnExec(fd)
	}
	if err := json.Unmarshal(data, &b.Config); err != nil {
		return nil, fmt.Errorf("boot config: %w", err)
	}
	if b.Config.Version != Version {
		return nil, fmt.Errorf("boot config has version %d, this binary speaks %d", b.Config.Version, Version)
	}
	return b, nil
}
