package shim

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/pelletier/go-toml/v2"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"runsc/pkg/cpufeature"
	"runsc/pkg/hostsecret"
)

// config is the TOML file that the runtime options name (ConfigPath) or hold
// (ConfigBody). Keys are named as users of gVisor know them where the meaning
// is the same.
type config struct {
	// NumCPUs is the number of CPUs the guest sees; 0 means the host's.
	NumCPUs int `toml:"num-cpus"`
	// Debug makes the shim and the Sentry log more.
	Debug bool `toml:"debug"`
	// DebugLog is a file to which the Sentry's log goes besides the shim's.
	DebugLog string `toml:"debug-log"`
	// Overlay2 says where writes to a root file system go: "root:memory", the
	// default, keeps them in the sandbox's memory, "root:self" and
	// "root:dir=PATH" in a file of the host; "none" writes to the host. An
	// annotation overrides it.
	Overlay2 string `toml:"overlay2"`
	// InodePolicy says how inode numbers of host files reach the guest:
	// "hash", the default, "host" or "map".
	InodePolicy string `toml:"inode-policy"`
	// InodeKeyFile holds the host's secret for the policy "hash".
	InodeKeyFile string `toml:"inode-key-file"`
	// FileAccessMode says who does the operations on host files: "direct", the
	// default, the Sentry, "remote" the gofer process.
	FileAccessMode string `toml:"file-access-mode"`
	// FileAccess and FileAccessMounts say who else changes the files of the
	// root file system and of bind mounts: "exclusive" or "shared".
	FileAccess       string `toml:"file-access"`
	FileAccessMounts string `toml:"file-access-mounts"`
	// DentryCacheSize bounds the unused names that a sandbox keeps; 0 means
	// the default.
	DentryCacheSize int `toml:"dentry-cache-size"`
	// HostUDS and HostFifo say whether unix sockets and fifos in bind mounts
	// are the host's.
	HostUDS  string `toml:"host-uds"`
	HostFifo string `toml:"host-fifo"`
	// ValidateMetadata records size and mtime of open host files in an image;
	// a restore refuses a file that has others. An annotation overrides it.
	ValidateMetadata bool `toml:"validate-metadata"`
	// Compression of an image: "none", the default, or "zstd". An annotation
	// overrides it.
	Compression string `toml:"compression"`
	// RestoreAllow lists the directories below which an image may lie that an
	// annotation names.
	RestoreAllow []string `toml:"restore-allow"`
	// CPUFeaturesMask are features of the processor, by their names in
	// /proc/cpuinfo, that guests are not to see.
	CPUFeaturesMask []string `toml:"cpu-features-mask"`
	// RestoreWait is how long, after one container of a pod's image was
	// started, the next one has before those left are given up.
	RestoreWait string `toml:"restore-wait"`
	// RootfsAllow lists the directories below which a file may lie that
	// annotations name as a container's root.
	RootfsAllow []string `toml:"rootfs-allow"`
	// Strace makes the Sentry log every system call of the guest.
	Strace bool `toml:"strace"`
}

// inodeKeyFile is the path of the secret below containerd's root directory: it
// survives reboots and is the same for all sandboxes of that containerd.
const inodeKeyFile = "io.containerd.runsc.v1/inode-key"

// defaultInodeKeyFile finds containerd's root by the bundle's link "work",
// which names <root>/io.containerd.runtime.v2.task/<namespace>/<id>. The
// daemon runs in the bundle.
func defaultInodeKeyFile() string {
	work, err := os.Readlink("work")
	if err != nil || !filepath.IsAbs(work) {
		return "/var/lib/containerd/" + inodeKeyFile
	}
	return filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(work))), inodeKeyFile)
}

const (
	overlayMemory = "root:memory"
	overlayNone   = "none"

	compressionNone = "none"
	compressionZstd = "zstd"

	restoreWait = "2m"
)

// cpuidFaults is changed by tests.
var cpuidFaults = cpufeature.Faulting

// maxDentries bounds dentry-cache-size: some 400 bytes each.
const maxDentries = 16 << 20

// maxCPUs is what Linux's largest configuration allows (CONFIG_NR_CPUS).
const maxCPUs = 8192

// parseConfig reads a config body; name is used in errors.
func parseConfig(name string, body []byte) (*config, error) {
	c := &config{}
	dec := toml.NewDecoder(bytes.NewReader(body)).DisallowUnknownFields()
	if err := dec.Decode(c); err != nil {
		var strict *toml.StrictMissingError
		if errors.As(err, &strict) && len(strict.Errors) > 0 {
			var keys []string
			for _, e := range strict.Errors {
				keys = append(keys, strings.Join(e.Key(), "."))
			}
			slices.Sort(keys)
			return nil, fmt.Errorf("%s: unknown key %q", name, strings.Join(slices.Compact(keys), `", "`))
		}
		var bad *toml.DecodeError
		if errors.As(err, &bad) {
			if key := strings.Join(bad.Key(), "."); key != "" {
				name += ": " + key
			}
		}
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if c.NumCPUs < 0 || c.NumCPUs > maxCPUs {
		return nil, fmt.Errorf("%s: num-cpus is %d, 0 (the host's number) to %d are possible", name, c.NumCPUs, maxCPUs)
	}
	switch c.InodePolicy {
	case "":
		c.InodePolicy = "hash"
	case "hash", "host", "map":
	default:
		return nil, fmt.Errorf("%s: inode-policy is %q, \"hash\", \"host\" and \"map\" are possible", name, c.InodePolicy)
	}
	for _, k := range []struct {
		name   string
		value  *string
		values []string // the default first
	}{
		{"file-access-mode", &c.FileAccessMode, []string{"direct", "remote"}},
		{"file-access", &c.FileAccess, []string{"exclusive", "shared"}},
		{"file-access-mounts", &c.FileAccessMounts, []string{"shared", "exclusive"}},
		{"host-uds", &c.HostUDS, []string{"none", "open", "create", "all"}},
		{"host-fifo", &c.HostFifo, []string{"none", "open"}},
	} {
		if *k.value == "" {
			*k.value = k.values[0]
		}
		if !slices.Contains(k.values, *k.value) {
			return nil, fmt.Errorf("%s: %s is %q, %q are possible", name, k.name, *k.value, k.values)
		}
	}
	if c.DentryCacheSize < 0 || c.DentryCacheSize > maxDentries {
		return nil, fmt.Errorf("%s: dentry-cache-size is %d, 0 (the default) to %d are possible", name, c.DentryCacheSize, maxDentries)
	}
	if c.InodeKeyFile != "" && !filepath.IsAbs(c.InodeKeyFile) {
		return nil, fmt.Errorf("%s: inode-key-file %q is not an absolute path", name, c.InodeKeyFile)
	}
	switch c.Compression {
	case "":
		c.Compression = compressionNone
	case compressionNone, compressionZstd:
	default:
		return nil, fmt.Errorf("%s: compression is %q, %q and %q are possible", name, c.Compression, compressionNone, compressionZstd)
	}
	if c.RestoreWait == "" {
		c.RestoreWait = restoreWait
	}
	if d, err := time.ParseDuration(c.RestoreWait); err != nil || d <= 0 {
		return nil, fmt.Errorf("%s: restore-wait is %q, not a time like \"90s\" or \"5m\"", name, c.RestoreWait)
	}
	for key, list := range c.doors() {
		for i, p := range list {
			if !filepath.IsAbs(p) {
				return nil, fmt.Errorf("%s: %s: %q is not an absolute path", name, key, p)
			}
			list[i] = filepath.Clean(p)
		}
	}
	if err := cpufeature.Check(c.CPUFeaturesMask); err != nil {
		return nil, fmt.Errorf("%s: cpu-features-mask: %w", name, err)
	}
	slices.Sort(c.CPUFeaturesMask)
	c.CPUFeaturesMask = slices.Compact(c.CPUFeaturesMask)
	if len(c.CPUFeaturesMask) > 0 && !cpuidFaults() {
		return nil, fmt.Errorf("%s: cpu-features-mask is not possible on this host: its processor cannot be told to let CPUID fault", name)
	}
	if c.Overlay2 == "" {
		c.Overlay2 = overlayMemory
	}
	if _, err := parseOverlay(c.Overlay2); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return c, nil
}

// configFromOptions reads the runtime options of a request. They may be
// missing, an empty message, ours, or runc's, which client helpers send to any
// runtime; other types are ignored.
func configFromOptions(opts *anypb.Any) (*config, error) {
	if opts == nil || opts.GetTypeUrl() == "" {
		return parseConfig("", nil)
	}
	o := &runtimeoptions.Options{}
	if !opts.MessageIs(o) {
		return parseConfig("", nil)
	}
	if err := proto.Unmarshal(opts.GetValue(), o); err != nil {
		return nil, fmt.Errorf("runtime options: %w", err)
	}
	if o.ConfigPath != "" {
		return readConfig(o.ConfigPath)
	}
	c, err := parseConfig("runtime options", o.ConfigBody)
	if err == nil {
		for key := range c.doors() {
			return nil, fmt.Errorf("runtime options: %s is possible in a file only, named by ConfigPath", key)
		}
	}
	return c, err
}

// doors are the keys that let annotations name files of the host, those that
// are set.
func (c *config) doors() map[string][]string {
	m := map[string][]string{}
	if len(c.RestoreAllow) > 0 {
		m["restore-allow"] = c.RestoreAllow
	}
	if len(c.RootfsAllow) > 0 {
		m["rootfs-allow"] = c.RootfsAllow
	}
	return m
}

// maxConfig bounds a config file.
const maxConfig = 1 << 20

// readConfig reads a config file. What opens a door counts only in a file that
// nobody but root can write.
func readConfig(path string) (*config, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("runtime options: %w", err)
	}
	defer f.Close()
	body, err := io.ReadAll(io.LimitReader(f, maxConfig))
	if err != nil {
		return nil, fmt.Errorf("runtime options: %w", err)
	}
	c, err := parseConfig(path, body)
	if err != nil || len(c.doors()) == 0 {
		return c, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if st.Uid != 0 || st.Mode&0o022 != 0 || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, fmt.Errorf("%s: %s counts only in a regular file that belongs to root and that no one else can write", path, strings.Join(slices.Sorted(maps.Keys(c.doors())), ", "))
	}
	return c, nil
}

// equal reports whether two configurations make the same sandbox.
func (c *config) equal(o *config) bool { return reflect.DeepEqual(c, o) }

// Linked in so that protobuf knows the type: -info echoes such options.
var _ proto.Message = (*runcoptions.Options)(nil)

// sentryOptions returns the keys that the Sentry reads.
func (c *config) sentryOptions() (map[string]string, error) {
	o := map[string]string{
		"inode-policy":       c.InodePolicy,
		"file-access-mode":   c.FileAccessMode,
		"file-access":        c.FileAccess,
		"file-access-mounts": c.FileAccessMounts,
		"dentry-cache-size":  strconv.Itoa(c.DentryCacheSize),
		"host-uds":           c.HostUDS,
		"host-fifo":          c.HostFifo,
		"restore-wait":       c.RestoreWait,
	}
	if c.InodePolicy == "hash" {
		file := c.InodeKeyFile
		if file == "" {
			file = defaultInodeKeyFile()
		}
		key, err := hostsecret.Load(file)
		if err != nil {
			return nil, err
		}
		o["inode-key"] = hex.EncodeToString(key[:])
	}
	if c.DebugLog != "" {
		o["debug-log"] = c.DebugLog
	}
	if len(c.CPUFeaturesMask) > 0 {
		o["cpu-features-mask"] = strings.Join(c.CPUFeaturesMask, " ")
	}
	if c.Strace {
		o["strace"] = "true"
	}
	return o, nil
}
