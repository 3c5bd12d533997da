package shim

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"runsc/pkg/controlapi"
)

// joins turns the namespace paths of a spec, which name host processes, into
// the containers of this pod that the processes stand for.
func (c *container) joins(req *controlapi.CreateContainerRequest, spec *specs.Spec) error {
	for _, ns := range spec.Linux.Namespaces {
		if ns.Path == "" {
			continue
		}
		var to *string
		switch ns.Type {
		case specs.PIDNamespace:
			to = &req.JoinPID
		case specs.IPCNamespace:
			to = &req.JoinIPC
		case specs.UTSNamespace:
			to = &req.JoinUTS
		default:
			continue
		}
		id, err := c.svc.ownerOf(ns.Path, c.sb)
		if err != nil {
			return fmt.Errorf("the spec's linux.namespaces %s cannot be honoured: %w", ns.Type, err)
		}
		*to = id
	}
	req.Hostname = spec.Hostname
	if _, has := namespacePath(spec, specs.UTSNamespace); !has || req.Hostname == "" {
		name, err := os.Hostname()
		if err != nil {
			return err
		}
		req.Hostname = name
	}
	return nil
}

// ownerOf returns the container that a path like /proc/123/ns/pid stands for.
// Two containers with the same pid cannot be told apart: the root wins.
func (s *service) ownerOf(path string, sb *sandbox) (string, error) {
	parts := strings.Split(path, "/")
	if len(parts) == 5 && parts[0] == "" && parts[1] == "proc" && parts[3] == "ns" {
		if pid, err := strconv.Atoi(parts[2]); err == nil {
			found := ""
			for _, c := range s.all() {
				if c.sb == sb && c.pidOf() == pid && (found == "" || c.root) {
					found = c.id
				}
			}
			if found != "" {
				return found, nil
			}
		}
	}
	return "", fmt.Errorf("%s is not a namespace of a container in this pod", path)
}
