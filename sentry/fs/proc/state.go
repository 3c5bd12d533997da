package proc

import (
	"maps"

	"golang.org/x/sys/unix"
)

// bootIDPath is where the boot id is seen, which is kept with the settings.
const bootIDPath = "kernel/random/boot_id"

// Values implements pseudo.Settings: the sysctls of the container that were
// written, the container's boot id and what namespaces keep.
func (in *instance) Values() map[string]string {
	in.sysctls.mu.Lock()
	defer in.sysctls.mu.Unlock()
	v := maps.Clone(in.sysctls.values)
	if v == nil {
		v = map[string]string{}
	}
	v[bootIDPath] = in.sysctls.bootID
	return v
}

// SetValue implements pseudo.Settings, with the checks of a write.
func (in *instance) SetValue(name, value string) error {
	if name == bootIDPath {
		if !validUUID(value) {
			return unix.EINVAL
		}
		in.sysctls.mu.Lock()
		in.sysctls.bootID = value
		in.sysctls.mu.Unlock()
		return nil
	}
	for i := range sysctlTable {
		k := &sysctlTable[i]
		if k.path != name || k.set != nil || k.perm&0o222 == 0 {
			continue
		}
		f := sysctlFile{sysctlNode{in, k}}
		if k.numbers == 0 {
			return f.writeText(nil, []byte(value), 0)
		}
		left, err := f.writeInts(nil, []byte(value))
		if err == nil && left > 0 {
			err = unix.EINVAL
		}
		return err
	}
	return unix.ENOENT
}

// validUUID tells whether s looks as newUUID's.
func validUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		if dash := i == 8 || i == 13 || i == 18 || i == 23; dash != (s[i] == '-') || !dash && !isHex(s[i]) {
			return false
		}
	}
	return true
}
