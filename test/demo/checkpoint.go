package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"runsc/pkg/imagefmt"
	"runsc/test/rig"
)

const counter = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.1; done"

// checkpoint saves a counter, kills it, and restores it into another container.
func checkpoint(r *rig.Rig) error {
	image := filepath.Join(r.Dir, "w", "image")
	config := filepath.Join(r.Dir, "w", "runsc.toml")
	if err := os.WriteFile(config, []byte(fmt.Sprintf("restore-allow = [%q]\n", filepath.Dir(image))), 0o644); err != nil {
		return err
	}
	fmt.Printf("\n--- a checkpoint: sh -c '%s'\n", counter)
	id, err := r.Begin(rig.Container{Runtime: rig.Runsc, Args: []string{"sh", "-c", counter}})
	if err != nil {
		return err
	}
	defer r.Remove(id)
	if _, err := counts(r, id, 10); err != nil {
		return err
	}
	// The pause in the manifest is the Sentry's; this command of ctr has containerd pause the task for longer.
	res := r.Ctr("task", "checkpoint", "--image-path", image, id)
	if err := res.Err(); err != nil {
		return err
	}
	m, err := manifest(image)
	if err != nil {
		return err
	}
	saved := last(r.Output(id))
	fmt.Printf("ctr task checkpoint took %.3f s; the Sentry made its cut in %v\n", res.Took.Seconds(), time.Duration(m.PauseNanos).Round(10*time.Microsecond))
	fmt.Printf("the image: %d bytes of state, %d pages of memory\n", m.Files[imagefmt.KernelFile].Size, m.Pages)
	if _, err := counts(r, id, saved); err != nil {
		return fmt.Errorf("after the checkpoint: %w", err)
	}
	r.Remove(id)
	fmt.Printf("it went on to %d, and was killed\n", last(r.Output(id)))

	start := time.Now()
	copied, err := r.Begin(rig.Container{Runtime: rig.Runsc, Args: []string{"false"}, Flags: []string{
		"--runtime-config-path", config, "--annotation", "dev.runsc.restore-image=" + image}})
	if err != nil {
		return err
	}
	defer r.Remove(copied)
	fmt.Printf("restored into another container: ctr run took %.3f s\n", time.Since(start).Seconds())
	if _, err := counts(r, copied, saved+3); err != nil {
		return fmt.Errorf("after the restore: %w", err)
	}
	lines := strings.Fields(r.Output(copied))
	fmt.Printf("it goes on: %s\n", strings.Join(lines[:3], " "))
	if first, _ := strconv.Atoi(lines[0]); first < 2 || first > saved+2 {
		return fmt.Errorf("the copy counts from %d, the original was saved near %d", first, saved)
	}
	return nil
}

// counts waits until a counter is beyond a number.
func counts(r *rig.Rig, id string, beyond int) (int, error) {
	for range 100 {
		if n := last(r.Output(id)); n > beyond {
			return n, nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return 0, fmt.Errorf("the counter does not go on; the log ends:\n%s", r.LogTail(20))
}

// last is the last line of the counter's output.
func last(s string) int {
	lines := strings.Fields(s)
	if len(lines) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(lines[len(lines)-1])
	return n
}

// manifest reads an image's manifest.
func manifest(dir string) (*imagefmt.Manifest, error) {
	data, err := os.ReadFile(filepath.Join(dir, imagefmt.ManifestFile))
	if err != nil {
		return nil, err
	}
	return imagefmt.ParseManifest(data)
}
