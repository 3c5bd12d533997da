package shim

import (
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"runsc/pkg/controlapi"
)

// foreign reports whether a container's annotations name a pod that this
// daemon does not serve: it was restored, from an image or a checkpoint's
// spec, when its pod was gone, and is a container of its own here.
func (s *service) foreign(annotations map[string]string) bool {
	pod := annotations[annotationSandboxID]
	return pod != "" && pod != s.group
}

// kindHere is the container's kind for the Sentry.
func (s *service) kindHere(annotations map[string]string) string {
	if s.foreign(annotations) {
		return controlapi.KindPlain
	}
	return kindOf(annotations)
}

// leavePod takes the old pod's namespaces out of a spec that was made for
// another pod. They are named by pids and files that stand for that pod's
// sandbox if it lives, for nothing or for something else if it does not.
func (s *service) leavePod(spec *specs.Spec) {
	if !s.foreign(spec.Annotations) || spec.Linux == nil {
		return
	}
	for i := range spec.Linux.Namespaces {
		ns := &spec.Linux.Namespaces[i]
		switch ns.Type {
		case specs.PIDNamespace, specs.IPCNamespace, specs.UTSNamespace, specs.NetworkNamespace:
			ns.Path = ""
		}
	}
}
