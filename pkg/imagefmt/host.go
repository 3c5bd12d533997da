package imagefmt

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
)

// CheckHost returns an error that names what this host lacks of what the
// image needs: the architecture, or a processor feature that the guest saw.
func (m *Manifest) CheckHost() error {
	if m.Arch != runtime.GOARCH {
		return fmt.Errorf("the image is of architecture %s, this host is %s", m.Arch, runtime.GOARCH)
	}
	if len(m.CPUFeatures) == 0 {
		return nil
	}
	have, err := hostFeatures()
	if err != nil {
		return err
	}
	for _, f := range m.CPUFeatures {
		if !have[f] {
			return fmt.Errorf("the image needs the processor feature %q, which this host lacks", f)
		}
	}
	return nil
}

// hostFeatures returns the flags of the first processor in /proc/cpuinfo.
func hostFeatures() (map[string]bool, error) {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 64<<10)
	for s.Scan() {
		key, value, _ := strings.Cut(s.Text(), ":")
		if strings.TrimSpace(key) != "flags" && strings.TrimSpace(key) != "Features" {
			continue
		}
		have := map[string]bool{}
		for _, f := range strings.Fields(value) {
			have[f] = true
		}
		return have, nil
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("/proc/cpuinfo names no processor features")
}
