package proc

import (
	"maps"

	"golang.org/x/sys/unix"
)

// Values implements pseudo.Settings: the sysctls of the container that were
// written.
func (in *instance) Values() map[string]string {
	in.sysctls.mu.Lock()
	defer in.sysctls.mu.Unlock()
	return maps.Clone(in.sysctls.values)
}

// SetValue implements pseudo.Settings, with the checks of a write.
func (in *instance) SetValue(name, value string) error {
	for i := range sysctlTable {
		k := &sysctlTable[i]
		if k.path != name || k.set != nil {
			continue
		}
		_, err := sysctlNode{in, k}.Write(nil, []byte(value))
		return err
	}
	return unix.ENOENT
}
