package vfs

import (
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

// MountInfo is a line of /proc/PID/mountinfo, unescaped.
type MountInfo struct {
	ID, Parent uint64
	Dev        uint64 // st_dev of the root
	Root       string // within the file system
	Point      string // relative to the root asked for
	Options    string // per mount: "rw,nosuid,relatime"
	Optional   []string
	Type       string
	Source     string
	Super      string // per file system: "rw,size=65536k"
}

// MountInfo returns what is mounted at or below root, in the order that
// mountinfo shows it.
func (ns *Namespace) MountInfo(c Caller, root Path) []MountInfo {
	mounts.RLock()
	var list []*Mount
	if ns.root != nil {
		ns.root.eachLocked(func(m *Mount) {
			if m == root.Mount || below(m.Root(), root) {
				m.IncRef()
				list = append(list, m)
			}
		})
	}
	mounts.RUnlock()
	sort.Slice(list, func(i, j int) bool { return list[i].id < list[j].id })
	out := make([]MountInfo, 0, len(list))
	for _, m := range list {
		if info, ok := m.info(c, root); ok {
			out = append(out, info)
		}
		m.DecRef()
	}
	return out
}

func (m *Mount) info(c Caller, root Path) (MountInfo, bool) {
	i := MountInfo{ID: m.id, Type: m.sb.fs.Type(), Source: m.sb.fs.Source()}
	if st, err := m.root.inode.Stat(c, 0); err == nil {
		i.Dev = st.Dev
	}
	i.Root = Path{nil, m.root}.String(Path{nil, m.sb.root})
	var reached bool
	i.Point, reached = m.Root().Resolve(root)
	if !reached {
		// The caller's root is a directory inside m: the mount shows as "/"
		// only if that is m's own root.
		return i, false
	}
	mounts.RLock()
	if m.parent != nil {
		i.Parent = m.parent.id
	} else {
		i.Parent = m.id
	}
	prop, dominating := m.prop, m.dominatingLocked(root)
	mounts.RUnlock()
	if prop.peer != 0 {
		i.Optional = append(i.Optional, "shared:"+itoa(prop.peer))
	}
	if prop.master != 0 {
		i.Optional = append(i.Optional, "master:"+itoa(prop.master))
		if dominating != 0 && dominating != prop.master {
			i.Optional = append(i.Optional, "propagate_from:"+itoa(dominating))
		}
	}
	if prop.unbindable {
		i.Optional = append(i.Optional, "unbindable")
	}
	i.Options = m.Flags().String()
	i.Super = "rw"
	if m.sb.readOnly.Load() {
		i.Super = "ro"
	}
	for _, o := range superFlagNames {
		if m.sb.flags.Load()&o.bit != 0 {
			i.Super += "," + o.name
		}
	}
	if o := m.sb.fs.Options(); o != "" {
		i.Super += "," + o
	}
	return i, true
}

var superFlagNames = []struct {
	bit  uint32
	name string
}{
	{unix.MS_SYNCHRONOUS, "sync"}, {unix.MS_DIRSYNC, "dirsync"}, {unix.MS_MANDLOCK, "mand"}, {unix.MS_LAZYTIME, "lazytime"},
}

// dominatingLocked is the nearest peer group above a slave that has a member
// below root, 0 if none has (Linux's get_dominating_id).
func (m *Mount) dominatingLocked(root Path) uint32 {
	for id, n := m.prop.master, 0; id != 0 && n < maxMounts; n++ {
		g := mounts.groups[id]
		if g == nil || len(g.members) == 0 {
			return 0
		}
		for _, o := range g.members {
			if o.ns == m.ns && below(o.Root(), root) {
				return id
			}
		}
		id = g.members[0].prop.master
	}
	return 0
}

func itoa(n uint32) string {
	if n == 0 {
		return "0"
	}
	var b [10]byte
	i := len(b)
	for ; n > 0; n /= 10 {
		i--
		b[i] = byte('0' + n%10)
	}
	return string(b[i:])
}

// String gives the flags as /proc/mounts shows them.
func (f MountFlags) String() string {
	s := []string{"rw"}
	if f&unix.MS_RDONLY != 0 {
		s[0] = "ro"
	}
	for _, o := range []struct {
		bit  MountFlags
		name string
	}{
		{unix.MS_NOSUID, "nosuid"}, {unix.MS_NODEV, "nodev"}, {unix.MS_NOEXEC, "noexec"},
		{unix.MS_NOATIME, "noatime"}, {unix.MS_NODIRATIME, "nodiratime"}, {unix.MS_RELATIME, "relatime"},
		{unix.MS_NOSYMFOLLOW, "nosymfollow"},
	} {
		if f&o.bit != 0 {
			s = append(s, o.name)
		}
	}
	return strings.Join(s, ",")
}

// EscapeMountField writes blanks, tabs, newlines and backslashes in octal, as
// /proc/mounts and mountinfo do.
func EscapeMountField(s string) string {
	return strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`, "#", `\043`).Replace(s)
}
