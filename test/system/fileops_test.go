//go:build system

package system

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"runsc/test/rig"
)

// firstDifference is the first line in which two texts differ, of each.
func firstDifference(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range x {
		if i >= len(y) || x[i] != y[i] {
			got := "the end"
			if i < len(y) {
				got = y[i]
			}
			return fmt.Sprintf("line %d: here %q, there %q", i+1, x[i], got)
		}
	}
	return "one goes on"
}

// TestFileOperations does the same random file operations on the host's file systems and on the guest's: each
// result, and what is left, are the same. Seeds are few here; other ones, and more steps, by hand
// (fsops in docs/testing.md).
func TestFileOperations(t *testing.T) {
	begin(t)
	program := filepath.Join(os.Getenv("RIG_DIR"), "guest", "fsops")
	tests := []struct {
		name     string
		overlay  bool
		lower    bool   // the overlay's lower layer is a bind mount
		features string // what is left out
		seeds    []int
	}{
		{"tmpfs", false, false, "ekz", []int{1, 2, 3, 4, 5, 6}},
		{"bind mount", false, false, "ekzxds", []int{1, 2, 3, 4}},
		{"remote bind mount", false, false, "ekzxds", []int{5, 6}},
		{"overlay", true, false, "ekz", []int{1, 2, 3, 4, 5, 6}},
		{"overlay with user attributes", true, false, "ekzv", []int{7, 8, 9}},
		{"overlay on a bind mount", true, true, "ekz", []int{1, 2, 3}},
	}
	const steps = "700"
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			host := hostTmpfs(t, "size=64m,mode=755")
			shared := hostTmpfs(t, "size=64m,mode=755")
			script := "mkdir /mnt/x; mount -t tmpfs t /mnt/x || exit 1\n"
			want := map[int]string{}
			for _, s := range tt.seeds {
				seed := fmt.Sprint(s)
				dir := filepath.Join(host, seed)
				var args []string
				if err := os.Mkdir(dir, 0o755); err != nil {
					t.Fatal(err)
				}
				native := func(args ...string) []byte {
					// A mount namespace of its own: whatever goes wrong, nothing stays mounted.
					cmd := exec.Command(program, args...)
					cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
					out, err := cmd.CombinedOutput()
					if err != nil {
						t.Fatalf("%v natively: %v\n%s", args, err, out)
					}
					return out
				}
				place := "/mnt/x/" + seed
				script += "mkdir " + place + "\n"
				switch {
				case tt.overlay:
					args = []string{"overlay", dir, seed, steps, tt.features}
					if tt.lower {
						lower := filepath.Join(shared, seed)
						if err := os.Mkdir(lower, 0o755); err != nil {
							t.Fatal(err)
						}
						native("fill", lower, seed)
						want[s] = string(native(append(args, lower)...))
						args = append(args, "/d/"+seed)
						break
					}
					want[s] = string(native(args...))
				default:
					if tt.name != "tmpfs" {
						place = "/d/" + seed
						script += "mkdir " + place + "\n"
					}
					native("fill", dir, seed, tt.features)
					args = []string{dir, seed, steps, tt.features}
					want[s] = string(native(args...))
					script += fmt.Sprintf("/guest/fsops fill %s %s %s || exit 1\n", place, seed, tt.features)
				}
				script += "/guest/fsops " + strings.ReplaceAll(strings.Join(args, " "), dir, place) + " > /out/" + seed + " 2>&1 || exit 1\n"
			}
			out := t.TempDir()
			flags := []string{"--cap-add", "CAP_SYS_ADMIN", "--mount", bind(shared, "/d", "rw"), "--mount", bind(out, "/out", "rw")}
			if tt.name == "remote bind mount" {
				flags = append(flags, newPlace(t).placed(t, "remote")...)
			}
			res := R.Run(rig.Container{Runtime: runtime, Image: rig.Guest, Flags: flags, Args: sh(script), Timeout: 2 * time.Minute})
			if res.Code != 0 {
				t.Errorf("%s", res)
			}
			for s, w := range want {
				got, _ := os.ReadFile(filepath.Join(out, fmt.Sprint(s)))
				if string(got) != w {
					t.Errorf("seed %d: %s", s, firstDifference(string(got), w))
				}
			}
		})
	}
}

// TestFileOperationsCheckpoint does the second half of the operations after a restore.
func TestFileOperationsCheckpoint(t *testing.T) {
	begin(t)
	program := filepath.Join(os.Getenv("RIG_DIR"), "guest", "fsops")
	const steps, features = "700", "ekz"
	for _, tt := range [][2]string{{"tmpfs", "11"}, {"tmpfs", "12"}, {"overlay", "11"}, {"overlay", "13"}, {"overlay", "15"}} {
		mode, seed := tt[0], tt[1]
		t.Run(mode+" "+seed, func(t *testing.T) {
			host := hostTmpfs(t, "size=64m,mode=755")
			args := []string{"/mnt", seed, steps, features}
			native := []string{host, seed, steps, features}
			flags := []string{"--cap-add", "CAP_SYS_ADMIN", "--env", "HOLD=/go/go"}
			if mode == "overlay" {
				args, native = append([]string{"overlay"}, args...), append([]string{"overlay"}, native...)
			} else {
				flags = append(flags, "--mount", "type=tmpfs,dst=/mnt,options=mode=755")
			}
			cmd := exec.Command(program, native...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
			want, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			p := newPlace(t)
			id := detached(t, rig.Container{Image: rig.Guest, Flags: append(p.flags, flags...), Args: append([]string{"/guest/fsops"}, args...)})
			awaitOutput(t, id, "ready\n")
			ok(t, R.Ctr("task", "checkpoint", "--image-path", p.img(1), id))
			first := strings.Replace(R.Output(id), "ready\n", "", 1)
			R.Remove(id)
			p.letGo(t)
			r := p.restored(p.img(1))
			r.Image, r.Flags = rig.Guest, append(r.Flags, flags...)
			res := R.Run(r)
			if got := first + res.Stdout; res.Code != 0 || got != string(want) {
				t.Errorf("exit code %d, %s", res.Code, firstDifference(got, string(want)))
			}
		})
	}
}
