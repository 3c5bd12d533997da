package shim

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"runsc/pkg/controlapi"
)

// Annotations by which CRI implementations tell pods from containers.
const (
	annotationType      = "io.kubernetes.cri.container-type"
	annotationSandboxID = "io.kubernetes.cri.sandbox-id"
)

// maxSpec bounds a config.json.
const maxSpec = 16 << 20

// readSpec reads a bundle's configuration, as text for the Sentry and decoded.
func readSpec(bundle string) (json.RawMessage, *specs.Spec, error) {
	path := filepath.Join(bundle, "config.json")
	st, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if st.Size() > maxSpec {
		return nil, nil, fmt.Errorf("%s: %d bytes", path, st.Size())
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	spec := &specs.Spec{}
	if err := json.Unmarshal(raw, spec); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return raw, spec, nil
}

// readAnnotations reads no more than start needs. A missing file, as for a
// sandbox of the Sandbox API, gives none.
func readAnnotations(bundle string) (map[string]string, error) {
	raw, err := os.ReadFile(filepath.Join(bundle, "config.json"))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var spec struct {
		Annotations map[string]string `json:"annotations"`
	}
	if err := json.Unmarshal(raw, &spec); err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	return spec.Annotations, nil
}

// groupOf returns the id of the sandbox that a container belongs to, and
// whether it may only join one that lives.
func groupOf(id string, annotations map[string]string) (group string, mustLive bool) {
	pod := annotations[annotationSandboxID]
	switch {
	case pod == "" || controlapi.ValidateID(pod) != nil:
		return id, false
	case annotations[annotationType] == controlapi.KindSandbox:
		// Restored from an image, it may carry another pod's id.
		return id, false
	case annotations[annotationType] == controlapi.KindContainer:
		return pod, true
	default:
		return pod, false
	}
}

// kindOf returns the container's kind for the Sentry.
func kindOf(annotations map[string]string) string {
	switch k := annotations[annotationType]; k {
	case controlapi.KindSandbox, controlapi.KindContainer:
		return k
	}
	return controlapi.KindPlain
}

// rootPath returns the absolute path of the container's root file system.
func rootPath(bundle string, spec *specs.Spec) string {
	if filepath.IsAbs(spec.Root.Path) {
		return spec.Root.Path
	}
	return filepath.Join(bundle, spec.Root.Path)
}

// guestLimits are the limits that the Sentry enforces.
func guestLimits(spec *specs.Spec) controlapi.Limits {
	var l controlapi.Limits
	if spec.Linux == nil || spec.Linux.Resources == nil {
		return l
	}
	return limitsOf(spec.Linux.Resources)
}

func limitsOf(res *specs.LinuxResources) controlapi.Limits {
	var l controlapi.Limits
	if m := res.Memory; m != nil && m.Limit != nil && *m.Limit > 0 {
		l.MemoryBytes = *m.Limit
	}
	if p := res.Pids; p != nil && p.Limit != nil && *p.Limit > 0 {
		l.Pids = *p.Limit
	}
	return l
}

// namespacePath returns whether the spec has a namespace of a type, and its
// path.
func namespacePath(spec *specs.Spec, typ specs.LinuxNamespaceType) (path string, has bool) {
	if spec.Linux == nil {
		return "", false
	}
	for _, ns := range spec.Linux.Namespaces {
		if ns.Type == typ {
			return ns.Path, true
		}
	}
	return "", false
}
