package hostsecret

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Size is the length of the secret in bytes.
const Size = 32

// Load returns the secret in the file, which is made, mode 0600, if it is not
// there. Of several callers that make it at once all get the same. A file that
// others may read or that has another size is refused.
func Load(path string) (*[Size]byte, error) {
	if key, err := read(path); !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if err := create(path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("cannot make the inode key %s: %w", path, err)
	}
	return read(path)
}

func read(path string) (*[Size]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the inode key: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("the inode key %s has mode %04o: only its owner may have access, set it to 0600", path, st.Mode().Perm())
	}
	var key [Size]byte
	if n, _ := f.Read(key[:]); n != Size || st.Size() != Size {
		return nil, fmt.Errorf("the inode key %s is not %d bytes long: remove it and a new one is made", path, Size)
	}
	return &key, nil
}

// create writes a new secret under another name and links it into place, so
// that nobody ever sees part of one.
func create(path string) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	var key [Size]byte
	if _, err := rand.Read(key[:]); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".inode-key-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if _, err := f.Write(key[:]); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return os.Link(f.Name(), path)
}
