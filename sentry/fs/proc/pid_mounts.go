package proc

import (
	"bytes"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"runsc/sentry/vfs"
)

// mountList returns p's mounts as seen from its root.
func (p process) mountList(c vfs.Caller) (list []vfs.MountInfo, err error) {
	root, err := p.root()
	if err != nil {
		return nil, unix.EINVAL // mounts_open_common
	}
	defer root.DecRef()
	for _, t := range p.threads() {
		if t.WithMountNamespace(func(ns *vfs.Namespace) { list = ns.MountInfo(c, root) }) {
			return list, nil
		}
	}
	return nil, unix.EINVAL
}

func (p process) mounts(c vfs.Caller, b *bytes.Buffer) error {
	list, err := p.mountList(c)
	esc := vfs.EscapeMountField
	for _, m := range list {
		fmt.Fprintf(b, "%s %s %s %s 0 0\n", esc(m.Source), esc(m.Point), esc(m.Type), esc(mountOptions(&m)))
	}
	return err
}

// mountOptions joins the options of mount and file system: "ro" if either is.
func mountOptions(m *vfs.MountInfo) string {
	mode, fsOptions, more := strings.Cut(m.Super, ",")
	opts := m.Options
	if mode == "ro" {
		opts = "ro" + strings.TrimPrefix(strings.TrimPrefix(opts, "rw"), "ro")
	}
	if more {
		opts += "," + fsOptions
	}
	return opts
}

func (p process) mountinfo(c vfs.Caller, b *bytes.Buffer) error {
	list, err := p.mountList(c)
	esc := vfs.EscapeMountField
	for _, m := range list {
		fmt.Fprintf(b, "%d %d %d:%d %s %s %s", m.ID, m.Parent, unix.Major(m.Dev), unix.Minor(m.Dev), esc(m.Root), esc(m.Point), esc(m.Options))
		for _, o := range m.Optional {
			b.WriteString(" " + o)
		}
		fmt.Fprintf(b, " - %s %s %s\n", esc(m.Type), esc(m.Source), esc(m.Super))
	}
	return err
}

func (p process) mountstats(c vfs.Caller, b *bytes.Buffer) error {
	list, err := p.mountList(c)
	esc := vfs.EscapeMountField
	for _, m := range list {
		fmt.Fprintf(b, "device %s mounted on %s with fstype %s\n", esc(m.Source), esc(m.Point), esc(m.Type))
	}
	return err
}
