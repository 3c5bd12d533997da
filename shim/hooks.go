package shim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// hookPatience bounds a hook that sets no timeout of its own.
const hookPatience = 60 * time.Second

// hookState is what a hook reads from its standard input.
func hookState(id, bundle string, pid int, status specs.ContainerState, annotations map[string]string) *specs.State {
	return &specs.State{
		Version:     specs.Version,
		ID:          id,
		Status:      status,
		Pid:         pid,
		Bundle:      bundle,
		Annotations: annotations,
	}
}

// runHooks runs OCI hooks on the host, in order, and stops at the first that
// fails.
func runHooks(name string, hooks []specs.Hook, state *specs.State) error {
	if len(hooks) == 0 {
		return nil
	}
	in, err := json.Marshal(state)
	if err != nil {
		return err
	}
	for i := range hooks {
		if err := runHook(&hooks[i], in, state.Bundle); err != nil {
			return fmt.Errorf("%s hook %d (%s): %w", name, i, hooks[i].Path, err)
		}
	}
	return nil
}

func runHook(h *specs.Hook, in []byte, bundle string) error {
	patience := hookPatience
	if h.Timeout != nil {
		if *h.Timeout <= 0 {
			return fmt.Errorf("timeout %d is not positive", *h.Timeout)
		}
		patience = time.Duration(*h.Timeout) * time.Second
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, h.Path)
	if len(h.Args) > 0 {
		cmd.Args = h.Args
	}
	// A hook without env gets an empty environment, not ours.
	cmd.Env = append([]string{}, h.Env...)
	cmd.Dir = bundle
	cmd.Stdin = bytes.NewReader(in)
	cmd.Stdout, cmd.Stderr = &limitedBuffer{b: &out}, &limitedBuffer{b: &out}
	// A grandchild that keeps the output open must not hold us.
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("not done after %s", patience)
		}
		if s := strings.TrimSpace(out.String()); s != "" {
			return fmt.Errorf("%w: %s", err, printable(s))
		}
		return err
	}
	return nil
}

// limitedBuffer keeps the first part of what is written to it.
type limitedBuffer struct{ b *bytes.Buffer }

const maxHookOutput = 4096

func (l *limitedBuffer) Write(p []byte) (int, error) {
	if room := maxHookOutput - l.b.Len(); room > 0 {
		l.b.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}
