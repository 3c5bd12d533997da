package overlay

import (
	"strings"

	"golang.org/x/sys/unix"

	"runsc/sentry/vfs"
)

// maxLower bounds the layers of a guest's mount (OVL_MAX_STACK).
const maxLower = 500

// FSType is overlay for mount(2). The caller must have a file system context
// (a method FS), to find the directories that the options name.
func FSType() vfs.FSType {
	return vfs.FSType{Name: "overlay", NoDev: true, Commas: true, New: mount}
}

// mount reads lowerdir=A:B,upperdir=U,workdir=W and further options that ask
// for what is so anyway.
func mount(c vfs.Caller, source, options string, _ vfs.MountFlags) (vfs.Filesystem, error) {
	t, ok := c.(interface{ FS() *vfs.FSContext })
	if !ok {
		return nil, unix.ENODEV
	}
	var lower []string
	var upper, work, redirect string
	var shown []string
	for _, o := range splitEscaped(options, ',') {
		key, val, _ := strings.Cut(o, "=")
		switch key {
		case "":
			continue
		case "lowerdir":
			lower = splitEscaped(val, ':')
		case "upperdir":
			upper = unescape(val)
		case "workdir":
			work = unescape(val)
		case "redirect_dir", "index", "metacopy", "nfs_export":
			if val != "off" && val != "nofollow" {
				return nil, unix.EINVAL
			}
			if key == "redirect_dir" {
				redirect = val
			}
		case "xino", "volatile", "userxattr", "uuid":
		default:
			return nil, unix.EINVAL
		}
		shown = append(shown, o)
	}
	if prefixOf(options) == xattrUser && redirect != "" && redirect != "nofollow" {
		return nil, unix.EINVAL // ovl_fs_params_verify: unsafe in a user namespace
	}
	if len(lower) == 0 || len(lower) > maxLower || upper == "" && len(lower) < 2 || upper != "" && work == "" {
		return nil, unix.EINVAL
	}
	cfg := Config{Source: source, Options: strings.Join(shown, ",")}
	var held []vfs.Path
	find := func(name string) (vfs.Inode, error) {
		p, err := vfs.LookupAt(c, vfs.At{FS: t.FS(), Name: name, Flags: vfs.MustDir})
		if err != nil {
			return nil, err
		}
		held = append(held, p)
		p.Inode().IncRef()
		return p.Inode(), nil
	}
	fail := func(err error) (vfs.Filesystem, error) {
		release(cfg.LowerRoots)
		if cfg.UpperRoot != nil {
			cfg.UpperRoot.DecRef()
		}
		dropPaths(held)
		return nil, err
	}
	for _, l := range lower {
		i, err := find(unescape(l))
		if err != nil {
			return fail(err)
		}
		cfg.LowerRoots = append(cfg.LowerRoots, i)
	}
	if upper != "" {
		i, err := find(upper)
		if err != nil {
			return fail(err)
		}
		cfg.UpperRoot = i
		p := held[len(held)-1]
		if err := usable(c, p, i, prefixOf(options)); err != nil {
			return fail(err)
		}
	}
	cfg.Held = held
	return New(c, cfg)
}

// usable checks that an upper directory can hold what an overlay keeps there.
// Another overlay cannot (overlayfs.rst: the upper file system must support
// trusted.* attributes).
func usable(c vfs.Caller, p vfs.Path, i vfs.Inode, prefix string) error {
	if p.Mount.ReadOnly() {
		return unix.EROFS
	}
	x, ok := i.(vfs.Xattrer)
	if _, isDir := i.(vfs.TmpfileMaker); !ok || !isDir {
		return unix.EINVAL
	}
	probe := prefix + "probe"
	sys := systemCaller{c, newSystemCreds()}
	if x.Setxattr(sys, probe, []byte("y"), 0) != nil {
		return unix.EINVAL
	}
	_ = x.Removexattr(sys, probe)
	return nil
}

func dropPaths(list []vfs.Path) {
	for _, p := range list {
		p.DecRef()
	}
}

// splitEscaped splits at sep where no backslash precedes it.
func splitEscaped(s string, sep byte) []string {
	var out []string
	start := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case sep:
			out = append(out, s[start:i])
			start = i + 1
		}
	}
	return append(out, s[start:])
}

func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
