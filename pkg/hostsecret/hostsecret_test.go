package hostsecret

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "key")
	keys := make([][Size]byte, 16)
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() {
			k, err := Load(path)
			if err != nil {
				t.Error(err)
				return
			}
			keys[i] = *k
		})
	}
	wg.Wait()
	for i := range keys {
		if keys[i] != keys[0] || keys[i] == ([Size]byte{}) {
			t.Fatalf("caller %d got another key", i)
		}
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("temporary files are left: %v", entries)
	}
}

func TestLoadRefuses(t *testing.T) {
	dir := t.TempDir()
	tests := []struct {
		name string
		size int
		mode os.FileMode
	}{
		{"open to others", Size, 0o644},
		{"too short", Size - 1, 0o600},
		{"too long", Size + 1, 0o600},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(dir, tt.name)
			if err := os.WriteFile(path, make([]byte, tt.size), tt.mode); err != nil {
				t.Fatal(err)
			}
			if _, err := Load(path); err == nil {
				t.Error("no error")
			}
		})
	}
}
