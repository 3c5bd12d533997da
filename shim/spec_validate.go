package shim

import (
	"fmt"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// specRule refuses a spec for one of its fields. What is not in specRules is
// honoured, by the shim or by the Sentry.
type specRule struct {
	field string
	why   string
	// refuse returns true if the spec uses the field in a way that cannot be
	// honoured.
	refuse func(s *specs.Spec) bool
}

// specRules are checked in order, after validateShape.
var specRules = []specRule{
	{"windows", "this runtime runs Linux containers only", func(s *specs.Spec) bool { return s.Windows != nil }},
	{"solaris", "this runtime runs Linux containers only", func(s *specs.Spec) bool { return s.Solaris != nil }},
	{"vm", "the sandbox is not a virtual machine", func(s *specs.Spec) bool { return s.VM != nil }},
	{"zos", "this runtime runs Linux containers only", func(s *specs.Spec) bool { return s.ZOS != nil }},
	{"freebsd", "this runtime runs Linux containers only", func(s *specs.Spec) bool { return s.FreeBSD != nil }},

	{"process.apparmorProfile", "the guest kernel has no AppArmor", func(s *specs.Spec) bool {
		return s.Process.ApparmorProfile != "" && s.Process.ApparmorProfile != "unconfined"
	}},
	{"process.selinuxLabel", "the guest kernel has no SELinux", func(s *specs.Spec) bool { return s.Process.SelinuxLabel != "" }},
	{"process.scheduler", "scheduling policies are not supported", func(s *specs.Spec) bool { return s.Process.Scheduler != nil }},
	{"process.ioPriority", "I/O priorities are not supported", func(s *specs.Spec) bool { return s.Process.IOPriority != nil }},
	{"process.execCPUAffinity", "CPU affinity of exec'd processes is not supported", func(s *specs.Spec) bool { return s.Process.ExecCPUAffinity != nil }},
	{"process.commandLine", "it is Windows' field", func(s *specs.Spec) bool { return s.Process.CommandLine != "" }},

	{"hooks.createContainer", "nothing of the host can run in the guest's namespaces", func(s *specs.Spec) bool { return s.Hooks != nil && len(s.Hooks.CreateContainer) > 0 }},
	{"hooks.startContainer", "nothing of the host can run in the guest's namespaces", func(s *specs.Spec) bool { return s.Hooks != nil && len(s.Hooks.StartContainer) > 0 }},

	{"linux.uidMappings", "user namespaces from the host are not supported", linux(func(l *specs.Linux) bool { return len(l.UIDMappings) > 0 })},
	{"linux.gidMappings", "user namespaces from the host are not supported", linux(func(l *specs.Linux) bool { return len(l.GIDMappings) > 0 })},
	{"linux.mountLabel", "the guest kernel has no SELinux", linux(func(l *specs.Linux) bool { return l.MountLabel != "" })},
	{"linux.intelRdt", "it is not supported", linux(func(l *specs.Linux) bool { return l.IntelRdt != nil })},
	{"linux.memoryPolicy", "NUMA memory policies are not supported", linux(func(l *specs.Linux) bool { return l.MemoryPolicy != nil })},
	{"linux.personality", "only the personality LINUX without flags is supported", linux(func(l *specs.Linux) bool {
		return l.Personality != nil && (l.Personality.Domain != specs.PerLinux || len(l.Personality.Flags) > 0)
	})},
	{"linux.timeOffsets", "time namespaces with offsets are not supported", linux(func(l *specs.Linux) bool { return len(l.TimeOffsets) > 0 })},
	{"linux.netDevices", "host network devices cannot be moved into a guest", linux(func(l *specs.Linux) bool { return len(l.NetDevices) > 0 })},
	{"linux.rootfsPropagation", "mounts of the guest cannot propagate to the host", linux(func(l *specs.Linux) bool {
		return !slices.Contains([]string{"", "private", "rprivate", "slave", "rslave"}, l.RootfsPropagation)
	})},

	//lint:ignore SA1019 refused because it has no meaning any more
	{"linux.resources.memory.kernel", "kernel memory of a guest is part of its memory", memory(func(m *specs.LinuxMemory) bool { return m.Kernel != nil && *m.Kernel > 0 })},
	{"linux.resources.memory.kernelTCP", "kernel memory of a guest is part of its memory", memory(func(m *specs.LinuxMemory) bool { return m.KernelTCP != nil && *m.KernelTCP > 0 })},
	{"linux.resources.memory.disableOOMKiller", "a guest over its limit is always killed", memory(func(m *specs.LinuxMemory) bool { return m.DisableOOMKiller != nil && *m.DisableOOMKiller })},
	{"linux.resources.hugepageLimits", "guests have no huge pages", resources(func(r *specs.LinuxResources) bool {
		// Kubernetes sends zero limits for every size of the host.
		return slices.ContainsFunc(r.HugepageLimits, func(h specs.LinuxHugepageLimit) bool { return h.Limit > 0 })
	})},
	{"linux.resources.rdma", "guests have no RDMA devices", resources(func(r *specs.LinuxResources) bool { return len(r.Rdma) > 0 })},
}

func linux(f func(*specs.Linux) bool) func(*specs.Spec) bool {
	return func(s *specs.Spec) bool { return s.Linux != nil && f(s.Linux) }
}

func resources(f func(*specs.LinuxResources) bool) func(*specs.Spec) bool {
	return linux(func(l *specs.Linux) bool { return l.Resources != nil && f(l.Resources) })
}

func memory(f func(*specs.LinuxMemory) bool) func(*specs.Spec) bool {
	return resources(func(r *specs.LinuxResources) bool { return r.Memory != nil && f(r.Memory) })
}

// validateSpec checks that every field of a spec can be honoured, and names
// the first one that cannot.
func validateSpec(s *specs.Spec) error {
	if err := validateShape(s); err != nil {
		return err
	}
	for _, r := range specRules {
		if r.refuse(s) {
			return fmt.Errorf("the spec's %s cannot be honoured: %s", r.field, r.why)
		}
	}
	if err := validateNamespaces(s); err != nil {
		return err
	}
	for i := range s.Mounts {
		if err := validateMount(&s.Mounts[i]); err != nil {
			return err
		}
	}
	return nil
}

// validateProcess checks the process of an exec.
func validateProcess(p *specs.Process) error {
	s := &specs.Spec{Process: p}
	for _, r := range specRules {
		if strings.HasPrefix(r.field, "process.") && r.refuse(s) {
			return fmt.Errorf("the %s cannot be honoured: %s", r.field, r.why)
		}
	}
	return nil
}

// validateResources checks the resources of an update.
func validateResources(res *specs.LinuxResources) error {
	s := &specs.Spec{Linux: &specs.Linux{Resources: res}}
	for _, r := range specRules {
		if strings.HasPrefix(r.field, "linux.resources.") && r.refuse(s) {
			return fmt.Errorf("%s cannot be honoured: %s", r.field, r.why)
		}
	}
	return nil
}

// validateShape checks for what every other function relies on.
func validateShape(s *specs.Spec) error {
	switch {
	case s.Process == nil:
		return fmt.Errorf("the spec has no process")
	case len(s.Process.Args) == 0:
		return fmt.Errorf("the spec's process.args is empty")
	case s.Root == nil || s.Root.Path == "":
		return fmt.Errorf("the spec has no root.path")
	case !strings.HasPrefix(s.Process.Cwd, "/"):
		return fmt.Errorf("the spec's process.cwd %q is not absolute", s.Process.Cwd)
	}
	return nil
}

// validateNamespaces checks the namespaces that the spec has and those that it
// leaves out, which would be the host's.
func validateNamespaces(s *specs.Spec) error {
	has := map[specs.LinuxNamespaceType]bool{}
	if s.Linux == nil {
		return fmt.Errorf("the spec has no linux section")
	}
	for _, ns := range s.Linux.Namespaces {
		if has[ns.Type] {
			return fmt.Errorf("the spec's linux.namespaces has %q twice", ns.Type)
		}
		has[ns.Type] = true
		switch ns.Type {
		case specs.UserNamespace:
			return fmt.Errorf("the spec's linux.namespaces user cannot be honoured: user namespaces from the host are not supported")
		case specs.TimeNamespace, specs.CgroupNamespace, specs.MountNamespace:
			if ns.Path != "" {
				return fmt.Errorf("the spec's linux.namespaces %s cannot be honoured: joining one by path is not supported", ns.Type)
			}
		case specs.PIDNamespace, specs.NetworkNamespace, specs.IPCNamespace, specs.UTSNamespace:
		default:
			return fmt.Errorf("the spec's linux.namespaces has the unknown type %q", ns.Type)
		}
	}
	// No network and no UTS namespace means the host's network and name, which
	// a guest can have. The host's processes and IPC objects it cannot have.
	for _, t := range []specs.LinuxNamespaceType{specs.PIDNamespace, specs.IPCNamespace} {
		if !has[t] {
			return fmt.Errorf("the spec's linux.namespaces lacks %s: the host's cannot be shared with a guest", t)
		}
	}
	return nil
}

// guestMounts are the types that the Sentry's own file systems serve.
var guestMounts = map[string]bool{
	"proc": true, "sysfs": true, "tmpfs": true, "devpts": true, "mqueue": true,
	"cgroup": true, "cgroup2": true, "ramfs": true,
}

// bindOptions are the options of a bind mount that have a meaning here.
var bindOptions = map[string]bool{
	"bind": true, "rbind": true, "ro": true, "rw": true, "rro": true, "rrw": true,
	"nosuid": true, "suid": true, "nodev": true, "dev": true, "noexec": true, "exec": true,
	"noatime": true, "atime": true, "nodiratime": true, "diratime": true, "relatime": true, "norelatime": true,
	"strictatime": true, "nostrictatime": true, "sync": true, "async": true, "defaults": true,
	"private": true, "rprivate": true, "slave": true, "rslave": true,
	"nosymfollow": true, "symfollow": true, "remount": true,
}

// isBind tells a bind mount, as runc does: by its type or an option.
func isBind(m *specs.Mount) bool {
	return m.Type == "bind" || slices.Contains(m.Options, "bind") || slices.Contains(m.Options, "rbind")
}

// validateMount checks one entry of the spec's mounts. Options of the guest's
// own file systems are checked by the Sentry, which serves them.
func validateMount(m *specs.Mount) error {
	if !strings.HasPrefix(m.Destination, "/") {
		return fmt.Errorf("the spec's mount destination %q is not absolute", m.Destination)
	}
	if len(m.UIDMappings) > 0 || len(m.GIDMappings) > 0 || slices.Contains(m.Options, "idmap") || slices.Contains(m.Options, "ridmap") {
		return fmt.Errorf("the spec's mount on %s cannot be honoured: id-mapped mounts are not supported", m.Destination)
	}
	for _, o := range m.Options {
		switch o {
		case "shared", "rshared", "unbindable", "runbindable":
			return fmt.Errorf("the spec's mount on %s cannot be honoured: option %q, mounts of the guest cannot propagate to the host", m.Destination, o)
		}
	}
	if !isBind(m) {
		if !guestMounts[m.Type] {
			return fmt.Errorf("the spec's mount on %s cannot be honoured: file system type %q", m.Destination, m.Type)
		}
		return nil
	}
	if m.Source == "" {
		return fmt.Errorf("the spec's bind mount on %s has no source", m.Destination)
	}
	for _, o := range m.Options {
		if !bindOptions[o] {
			return fmt.Errorf("the spec's mount on %s cannot be honoured: option %q", m.Destination, o)
		}
	}
	return nil
}
