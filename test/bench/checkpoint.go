package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"runsc/pkg/imagefmt"
	"runsc/test/rig"
)

// ckptBench measures saves and restores of this runtime beside gVisor's, in turns.
type ckptBench struct {
	r      *rig.Rig
	sides  []saver
	images string // a tmpfs: how fast the disk is does not matter
	count  int
	got    map[string][]float64
}

// checkpoints prints what saves and restores cost. names select some of it: idle, memory, restore, files.
func checkpoints(r *rig.Rig, names []string) error {
	o, hangUp, err := newOurs(r)
	if err != nil {
		return err
	}
	defer hangUp()
	b := &ckptBench{r: r, sides: []saver{o}, images: filepath.Join(r.Dir, "w", "images"), got: map[string][]float64{}}
	p, unmount, err := newPeer(r)
	if err != nil {
		return err
	}
	if p != nil {
		defer unmount()
		b.sides = []saver{p, o}
	}
	if err := os.Mkdir(b.images, 0o700); err != nil {
		return err
	}
	if err := syscall.Mount("bench", b.images, "tmpfs", 0, "size=8g"); err != nil {
		return err
	}
	defer syscall.Unmount(b.images, syscall.MNT_DETACH)
	fmt.Printf("\ncheckpoint and restore; images on a tmpfs; medians; gVisor's restore runs with --background\n")
	fmt.Printf("%-44s%12s%12s%12s  %s\n", "", "gvisor", "ours", "ours/gvisor", "mark")
	parts := []struct {
		name string
		run  func() error
	}{{"idle", b.idle}, {"memory", b.memory}, {"restore", b.restores}, {"files", b.files}}
	for _, p := range parts {
		if len(names) > 0 && !slices.Contains(names, p.name) {
			continue
		}
		if err := p.run(); err != nil {
			return fmt.Errorf("%w\nthe log's end:\n%s", err, r.LogTail(15))
		}
	}
	return nil
}

// add notes a figure of one side.
func (b *ckptBench) add(what string, s saver, value float64) {
	key := what + "/" + s.name()
	b.got[key] = append(b.got[key], value)
}

// of returns the median of what was noted, 0 if nothing was.
func (b *ckptBench) of(what, side string) float64 { return median(slices.Clone(b.got[what+"/"+side])) }

// print prints a line; mark, if any, says what was reached.
func (b *ckptBench) print(what, format string, mark func(gvisor, ours float64) (string, bool)) {
	text := func(side string) string {
		if len(b.got[what+"/"+side]) == 0 {
			return "-"
		}
		return fmt.Sprintf(format, b.of(what, side))
	}
	g, o := b.of(what, "gvisor"), b.of(what, "ours")
	said := ""
	if mark != nil {
		want, reached := mark(g, o)
		said = want + ": missed"
		if reached {
			said = want + ": reached"
		}
	}
	fmt.Printf("%-44s%12s%12s%12s  %s\n", what, text("gvisor"), text("ours"), ratio(o, g), said)
}

// atMost is a mark for the ratio to gVisor.
func atMost(most float64) func(gvisor, ours float64) (string, bool) {
	return func(g, o float64) (string, bool) {
		return fmt.Sprintf("<= %.2g of gVisor", most), g != 0 && o <= most*g
	}
}

// below is a mark for our figure alone.
func below(limit float64, unit string) func(gvisor, ours float64) (string, bool) {
	return func(_, o float64) (string, bool) { return fmt.Sprintf("<= %.4g %s", limit, unit), o != 0 && o <= limit }
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// dir returns a new image's directory.
func (b *ckptBench) dir() string {
	b.count++
	return filepath.Join(b.images, strconv.Itoa(b.count))
}

// saveNoted saves and notes time, processor time and the size of the state.
func (b *ckptBench) saveNoted(s saver, what string) (string, error) {
	dir := b.dir()
	before, err := s.cpu()
	if err != nil {
		return dir, err
	}
	took, err := s.save(dir)
	if err != nil {
		return dir, fmt.Errorf("%s: %w", s.name(), err)
	}
	after, err := s.cpu()
	if err != nil {
		return dir, err
	}
	size, err := s.state(dir)
	if err != nil {
		return dir, err
	}
	b.add(what+" save ms", s, ms(took))
	b.add(what+" save CPU ms", s, ms(after-before))
	b.add(what+" state KiB", s, float64(size)/1024)
	return dir, nil
}

// idle measures containers that sleep: untouched, after ps, after all of /proc and /sys was looked at. gVisor shows
// the host's CPUs only.
func (b *ckptBench) idle() error {
	const rounds = 5
	after := []struct {
		name string
		args []string
	}{
		{"idle", nil},
		{"after ps", []string{"ps"}},
		{"after find /proc /sys", []string{"sh", "-c", "find /proc /sys > /dev/null 2>&1; true"}},
	}
	var names []string
	for round := range rounds {
		for _, a := range after {
			for _, cpus := range []int{2, 16, 96} {
				what := fmt.Sprintf("%s, %d CPUs:", a.name, cpus)
				if round == 0 {
					names = append(names, what)
				}
				for _, s := range b.sides {
					if s.name() == "gvisor" && cpus != 2 {
						continue
					}
					if err := s.begin(cpus, "", "sleep", "1000"); err != nil {
						return err
					}
					var err error
					if a.args != nil {
						err = s.exec(a.args...)
					}
					time.Sleep(300 * time.Millisecond) // what follows a start is over
					if err == nil {
						_, err = b.saveNoted(s, what)
					}
					s.end()
					if err != nil {
						return err
					}
				}
			}
		}
	}
	for _, name := range names {
		// For 16 and 96 CPUs gVisor's figures with the host's are what there is to compare with.
		b.print(name+" save ms", "%.1f", nil)
		b.print(name+" save CPU ms", "%.1f", func(g, o float64) (string, bool) {
			before, _, _ := strings.Cut(name, ",")
			return atMost(0.3)(b.of(before+", 2 CPUs: save CPU ms", "gvisor"), o)
		})
		b.print(name+" state KiB", "%.1f", below(16, "KiB"))
	}
	return nil
}

// lines are those of a kind that guest program saved wrote so far.
func lines(file, kind string) (values []string) {
	data, _ := os.ReadFile(file) // made by the guest
	for line := range strings.Lines(string(data)) {
		if v, ok := strings.CutPrefix(line, kind+" "); ok {
			values = append(values, strings.TrimSpace(v))
		}
	}
	return values
}

// told waits for a line of a kind after the n that there were, and returns its number.
func told(file, kind string, n int) (time.Duration, error) {
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if lines(file, "damaged") != nil {
			return 0, errors.New("the guest found damaged memory")
		}
		if all := lines(file, kind); len(all) > n {
			ns, err := strconv.ParseInt(all[n], 10, 64)
			return time.Duration(ns), err
		}
	}
	return 0, fmt.Errorf("the guest wrote no %q within 30 s", kind)
}

// beginSaved starts the guest program saved, with a directory of its own as /go, and waits until it is ready.
func (b *ckptBench) beginSaved(s saver, mib int, period string) (bind string, err error) {
	b.count++
	bind = filepath.Join(b.r.Dir, "w", "go"+strconv.Itoa(b.count))
	if err := os.Mkdir(bind, 0o777); err != nil {
		return "", err
	}
	if err := s.begin(0, bind, "/guest/saved", strconv.Itoa(mib), period, "/go/told"); err != nil {
		return "", err
	}
	_, err = told(filepath.Join(bind, "told"), "ready", 0)
	return bind, err
}

// pauses saves a container with saved in it some times and notes for how long it stood still: as the image has it, and
// as the guest saw it.
func (b *ckptBench) pauses(s saver, what, bind string, rounds int) error {
	file := filepath.Join(bind, "told")
	for i := range rounds {
		time.Sleep(300 * time.Millisecond) // the last save's traces in the guest are gone
		if err := s.signal("SIGUSR1"); err != nil {
			return err
		}
		if _, err := told(file, "gap", 2*i); err != nil {
			return err
		}
		dir, err := b.saveNoted(s, what)
		if err != nil {
			return err
		}
		if err := s.signal("SIGUSR1"); err != nil {
			return err
		}
		gap, err := told(file, "gap", 2*i+1)
		if err != nil {
			return err
		}
		b.add(what+" pause seen by the guest ms", s, ms(gap))
		if data, err := os.ReadFile(filepath.Join(dir, imagefmt.ManifestFile)); err == nil {
			m, err := imagefmt.ParseManifest(data)
			if err != nil {
				return err
			}
			b.add(what+" pause ms", s, ms(time.Duration(m.PauseNanos)))
		}
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return nil
}

// memory measures the pause of containers with little and with much memory.
func (b *ckptBench) memory() error {
	for _, mib := range []int{16, 1024} {
		what := fmt.Sprintf("%d MiB touched:", mib)
		for _, s := range b.sides {
			bind, err := b.beginSaved(s, mib, "200")
			if err == nil {
				err = b.pauses(s, what, bind, 5)
			}
			s.end()
			if err != nil {
				return err
			}
		}
		b.print(what+" save ms", "%.0f", nil)
		b.print(what+" save CPU ms", "%.0f", nil)
		var mark func(gvisor, ours float64) (string, bool)
		if mib == 1024 {
			mark = func(_, o float64) (string, bool) {
				most := min(30, 1.5*b.of("16 MiB touched: pause ms", "ours"))
				return fmt.Sprintf("<= %.1f ms (30, 1.5 of 16 MiB's)", most), o <= most
			}
		}
		b.print(what+" pause ms", "%.2f", mark)
		b.print(what+" pause seen by the guest ms", "%.2f", nil)
	}
	return nil
}

// restores measures how long it takes from the request to the guest's first instruction, and the sandbox's memory afterwards.
func (b *ckptBench) restores() error {
	sizes := []int{0, 16, 1024}
	for _, mib := range sizes {
		what := fmt.Sprintf("%d MiB restored:", mib)
		rounds := 5
		if mib > 100 {
			rounds = 3
		}
		dirs, binds := map[string]string{}, map[string]string{}
		for _, s := range b.sides {
			bind, err := b.beginSaved(s, mib, "200")
			dir := b.dir()
			if err == nil {
				_, err = s.save(dir)
			}
			s.end()
			if err != nil {
				return err
			}
			dirs[s.name()], binds[s.name()] = dir, bind
		}
		for range rounds {
			for _, s := range b.sides {
				if err := b.restoreOnce(s, what, dirs[s.name()], binds[s.name()]); err != nil {
					return fmt.Errorf("%s: %w", s.name(), err)
				}
			}
		}
		for _, dir := range dirs {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
		}
		b.print(what+" first instruction after ms", "%.1f", func(g, o float64) (string, bool) {
			want, reached := atMost(0.4)(g, o)
			first := b.of(fmt.Sprintf("%d MiB restored: first instruction after ms", sizes[0]), "ours")
			return want + ", no growth", reached && o <= first*1.1
		})
		b.print(what+" command ms", "%.1f", nil)
		if mib != 0 {
			b.print(what+" all read and right after ms", "%.0f", nil)
		}
		b.print(what+" sandbox anonymous after 1.5 s MiB", "%.1f", nil)
	}
	return nil
}

func (b *ckptBench) restoreOnce(s saver, what, dir, bind string) error {
	if err := s.prepare(dir, bind); err != nil {
		return err
	}
	file := filepath.Join(bind, "told")
	restored, wholes := len(lines(file, "restored")), len(lines(file, "whole"))
	time.Sleep(300 * time.Millisecond)
	start := time.Now()
	err := s.restore(dir)
	took := time.Since(start)
	defer s.end()
	if err != nil {
		return err
	}
	first, err := told(file, "restored", restored)
	if err != nil {
		return err
	}
	whole, err := told(file, "whole", wholes)
	if err != nil {
		return err
	}
	time.Sleep(1500*time.Millisecond - time.Since(start.Add(took)))
	p, err := s.sandbox()
	if err != nil {
		return err
	}
	_, anonymous := p.Pss()
	b.add(what+" first instruction after ms", s, ms(first-time.Duration(start.UnixNano())))
	b.add(what+" all read and right after ms", s, ms(whole-time.Duration(start.UnixNano())))
	b.add(what+" command ms", s, ms(took))
	b.add(what+" sandbox anonymous after 1.5 s MiB", s, float64(anonymous)/1024)
	return nil
}

// files measures the pause of a container that has walked a shared mount, and the host's system calls of the stat family
// during a save.
func (b *ckptBench) files() error {
	for _, n := range []int{10_000, 100_000} {
		what := fmt.Sprintf("%d files walked:", n)
		for _, s := range b.sides {
			if n > 10_000 && s.name() == "gvisor" {
				continue // it takes minutes to walk them under strace
			}
			bind, err := b.beginSaved(s, 0, "200")
			if err == nil {
				err = makeFiles(filepath.Join(bind, "tree"), n)
			}
			if err == nil {
				err = s.exec("find", "/go/tree", "-size", "+1")
			}
			if err == nil && n == 10_000 {
				err = b.pauses(s, what, bind, 3)
			} else if err == nil {
				err = b.statCalls(s, what)
			}
			s.end()
			if err != nil {
				return err
			}
			if err := os.RemoveAll(filepath.Join(bind, "tree")); err != nil {
				return err
			}
		}
		if n == 10_000 {
			b.print(what+" save ms", "%.1f", nil)
			b.print(what+" pause ms", "%.2f", nil)
			b.print(what+" pause seen by the guest ms", "%.2f", nil)
			continue
		}
		b.print(what+" stat calls in a save", "%.0f", func(_, o float64) (string, bool) { return "< 50", o < 50 })
	}
	return nil
}

// makeFiles makes empty files in directories of 1000.
func makeFiles(top string, n int) error {
	for i := range n {
		dir := filepath.Join(top, strconv.Itoa(i/1000))
		if i%1000 == 0 {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
		}
		f, err := os.Create(filepath.Join(dir, fmt.Sprintf("file%03d", i%1000)))
		if err != nil {
			return err
		}
		f.Close()
	}
	return nil
}

// statCalls counts them with strace(1).
func (b *ckptBench) statCalls(s saver, what string) error {
	p, err := s.sandbox()
	if err != nil {
		return err
	}
	out := filepath.Join(b.r.Dir, "w", "strace")
	cmd := exec.Command("strace", "-f", "-c", "-U", "calls,name", "-e", "trace=%stat,%lstat,%fstat,statx", "-o", out, "-p", strconv.Itoa(p.PID))
	if err := cmd.Start(); err != nil {
		fmt.Printf("%-44s no strace: %v\n", what, err)
		return nil
	}
	time.Sleep(time.Second) // until it has all threads
	_, err = s.save(b.dir())
	cmd.Process.Signal(os.Interrupt)
	cmd.Wait() // strace ends by the signal
	if err != nil {
		return err
	}
	data, err := os.ReadFile(out)
	if err != nil {
		return err
	}
	calls := 0
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) == 2 && f[1] != "total" {
			n, _ := strconv.Atoi(f[0])
			calls += n
		}
	}
	b.add(what+" stat calls in a save", s, float64(calls))
	return nil
}
