package controlapi

import "fmt"

// maxIDLen is more than containerd's 76, which others may raise.
const maxIDLen = 256

// ValidateID checks a container or exec id: letters, digits and "-._", not
// empty, no leading separator. Ids become path elements and log text.
func ValidateID(id string) error {
	if id == "" || len(id) > maxIDLen {
		return fmt.Errorf("id of %d bytes: 1 to %d are possible", len(id), maxIDLen)
	}
	for i := 0; i < len(id); i++ {
		switch c := id[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case i > 0 && (c == '-' || c == '.' || c == '_'):
		default:
			return fmt.Errorf("id %q: character %d is not allowed", id, i)
		}
	}
	return nil
}

func checkExecID(execID string) error {
	if execID == "" {
		return nil
	}
	return ValidateID(execID)
}

func checkIDs(id, execID string) error {
	if err := ValidateID(id); err != nil {
		return err
	}
	return checkExecID(execID)
}
