package imagetool

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"runsc/pkg/imagefmt"
	"runsc/sentry/image"
)

// report is what inspect prints as JSON.
type report struct {
	Path     string             `json:"path"`
	Manifest *imagefmt.Manifest `json:"manifest"`
	State    *state             `json:"state"`
}

func inspect(path string, asJSON bool, w io.Writer) error {
	o, err := open(path)
	if err != nil {
		return err
	}
	defer o.Close()
	st, err := readState(o)
	if err != nil {
		return wrong(path, err)
	}
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(report{Path: path, Manifest: o.Manifest, State: st})
	}
	if err := printManifest(w, path, o.Manifest); err != nil {
		return err
	}
	return st.print(w)
}

// printManifest prints one line for each thing.
func printManifest(out io.Writer, path string, m *imagefmt.Manifest) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(key, format string, args ...any) {
		fmt.Fprintf(w, "%s\t%s\n", key, printable(fmt.Sprintf(format, args...)))
	}
	line("image", "%s", path)
	line("format", "%d", m.Format)
	line("made", "%s", m.Created.Format(time.RFC3339Nano))
	line("architecture", "%s", m.Arch)
	line("processor", "%s", strings.Join(m.CPUFeatures, " "))
	what := "one container"
	if m.Pod {
		what = fmt.Sprintf("a pod of %d containers", len(m.Containers))
	}
	line("content", "%s", what)
	line("pause", "%s", time.Duration(m.PauseNanos))
	line("memory", "%d pages, %d KiB", m.Pages, m.Pages*image.PageSize/1024)
	line("compressed", "%s", yesNo(m.Compressed))
	line("file metadata", "%s", yesNo(m.Validate))
	for _, name := range imagefmt.StateFiles {
		line(name, "%d bytes", m.Files[name].Size)
	}
	for i := range m.Containers {
		c := &m.Containers[i]
		name := c.ID
		if c.Name != "" {
			name += " (" + c.Name + ")"
		}
		if c.Root {
			name += ", root"
		}
		line("container", "%s", name)
		printSpec(line, c.Spec)
	}
	return w.Flush()
}

// printSpec prints what tells containers apart. The whole spec is in the JSON.
func printSpec(line func(string, string, ...any), raw json.RawMessage) {
	var s specs.Spec
	if len(raw) == 0 || json.Unmarshal(raw, &s) != nil {
		return
	}
	if s.Process != nil {
		line("  args", "%q", s.Process.Args)
		line("  cwd", "%s", s.Process.Cwd)
		line("  user", "%d:%d", s.Process.User.UID, s.Process.User.GID)
	}
	if s.Hostname != "" {
		line("  hostname", "%s", s.Hostname)
	}
	if s.Linux != nil && s.Linux.CgroupsPath != "" {
		line("  cgroup", "%s", s.Linux.CgroupsPath)
	}
	for _, m := range s.Mounts {
		line("  mount", "%s on %s type %s (%s)", m.Source, m.Destination, m.Type, strings.Join(m.Options, ","))
	}
}

func yesNo(v bool) string {
	if v {
		return "yes"
	}
	return "no"
}

// printable replaces what could play tricks with a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}
