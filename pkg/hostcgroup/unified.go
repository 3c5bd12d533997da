package hostcgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// checkUnified checks a key of linux.resources.unified: the name of a file in
// a cgroup v2 directory. Those that the Sentry must enforce itself are refused.
func checkUnified(key, value string) error {
	if key == "" || strings.ContainsAny(key, "/\x00") || strings.HasPrefix(key, "cgroup.") {
		return fmt.Errorf("linux.resources.unified: %q is not a controller's file", key)
	}
	switch key {
	case "memory.max", "pids.max":
		return fmt.Errorf("linux.resources.unified: set %s through linux.resources instead", key)
	}
	if strings.ContainsRune(value, '\x00') {
		return fmt.Errorf("linux.resources.unified: bad value for %q", key)
	}
	return nil
}

func (g *groupV2) writeUnified(unified map[string]string) error {
	for key, value := range unified {
		if err := checkUnified(key, value); err != nil {
			return err
		}
		f, err := os.OpenFile(filepath.Join(v2Root, g.path, key), os.O_WRONLY, 0)
		if err != nil {
			return fmt.Errorf("linux.resources.unified: %w", err)
		}
		_, err = f.WriteString(value)
		f.Close()
		if err != nil {
			return fmt.Errorf("linux.resources.unified: %w", err)
		}
	}
	return nil
}
