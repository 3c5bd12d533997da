//go:build system

package system

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"runsc/pkg/imagefmt"
	"runsc/test/rig"
)

//go:embed testdata/chain.py
var chainProgram string

// piping is a pipeline whose reader notices a number that is lost or comes twice.
const piping = `{ i=0; while :; do echo $i; i=$((i+1)); sleep 0.05; done; } | { want=0; while read n; do
	[ $n = $want ] || echo gap at $want: $n >> /go/gaps
	want=$((n+1)); echo $n > /go/counter; done; } & `

// TestCheckpointChain saves and restores one container over and over: a shell with a pipeline and a python program with
// threads, memory, an open file without a name and a directory that it is reading. It goes on each time, all is right, and
// neither the image nor the Sentry grows.
func TestCheckpointChain(t *testing.T) {
	begin(t)
	rounds, mib := size(8, 25), size(48, 300)
	p := newPlace(t)
	p.file(t, "go/chain.py", chainProgram)
	// The interpreter is the host's, with its libraries.
	p.flags = append(p.flags, "--mount", bind("/usr", "/usr", "ro"))
	c := rig.Container{Image: rig.Debian, Flags: p.flags, Args: []string{"bash", "-c", piping + fmt.Sprintf("python3 /go/chain.py %d; echo $? > /go/end", mib)}}
	var kernel, pages []int64
	var sentry []int
	counter := func() int { return last(p.output("counter")) }
	began, n := time.Now(), 0
	for i := range rounds {
		id := detached(t, c)
		p.file(t, fmt.Sprintf("go/check-%d", i), "")
		await(t, fmt.Sprintf("answer %d", i), 60*time.Second, func() bool {
			_, err := os.Stat(filepath.Join(p.dir, fmt.Sprintf("go/answer-%d", i)))
			return err == nil || p.output("end") != ""
		})
		if got := p.output(fmt.Sprintf("answer-%d", i)); got != "right" {
			t.Fatalf("after %d checkpoints: %q; %s %s", i, got, p.output("end"), R.Output(id))
		}
		await(t, "the pipeline", 20*time.Second, func() bool { return counter() > n })
		n = counter()
		// Sooner the image that is being loaded is in it.
		sentry = append(sentry, anonymous(t))
		ok(t, R.Ctr("task", "checkpoint", "--exit", "--image-path", p.img(i), id))
		R.Remove(id)
		m := manifest(t, p.img(i))
		kernel, pages = append(kernel, m.Files[imagefmt.KernelFile].Size), append(pages, int64(m.Pages))
		if i == rounds-1 {
			ok(t, image("verify", p.img(i)))
		}
		if i > 0 {
			os.RemoveAll(p.img(i - 1))
		}
		c = p.restored(p.img(i))
		c.Image, c.ID = rig.Debian, ""
	}
	if gaps := p.output("gaps"); gaps != "" {
		t.Errorf("the pipeline lost or repeated something: %s", gaps)
	}
	t.Logf("%d checkpoints of %d MiB in %v: kernel.img %v bytes, %v pages, Sentry %v KiB", rounds, mib, time.Since(began).Round(time.Second), kernel, pages, sentry)
	// Not against the first: python is still at its beginning there, and that Sentry has not restored.
	flat := func(what string, values []int64, most int64) {
		for _, v := range values[1:] {
			if v > values[1]+most {
				t.Errorf("%s grows: %v", what, values)
				return
			}
		}
	}
	flat("kernel.img", kernel, kernel[1]/50)
	flat("the memory in the image", pages, pages[1]/100)
	// The last ones, for what a single one has in caches differs.
	if a, b := least(sentry[1:3]), least(sentry[rounds-2:]); b > a+2048 {
		t.Errorf("the Sentry grows: %v KiB", sentry)
	}
	if strings.TrimSpace(p.output("end")) != "" {
		t.Errorf("python ended: %s", p.output("end"))
	}
}

func least(values []int) int {
	m := values[0]
	for _, v := range values {
		m = min(m, v)
	}
	return m
}
