package boot

import (
	"fmt"
	"path"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"runsc/pkg/controlapi"
	"runsc/sentry/fs/dev"
	"runsc/sentry/fs/erofs"
	"runsc/sentry/fs/gofer"
	"runsc/sentry/fs/overlay"
	"runsc/sentry/fs/tmpfs"
	"runsc/sentry/mem"
	"runsc/sentry/syscalls"
	"runsc/sentry/vfs"
)

// builder makes a container's mount tree.
type builder struct {
	s     *Sentry
	c     *container
	req   *controlapi.CreateContainerRequest
	fds   *fileSet
	who   *caller
	ns    *vfs.Namespace
	fs    *vfs.FSContext // root and cwd at the container's root
	files map[int]controlapi.Mount
}

// newBuilder returns a builder that has no mount namespace yet.
func newBuilder(c *container, req *controlapi.CreateContainerRequest, fds *fileSet) *builder {
	b := &builder{s: c.sentry, c: c, req: req, fds: fds, who: newCaller(), files: map[int]controlapi.Mount{}}
	for _, m := range req.Mounts {
		b.files[m.Index] = m
	}
	return b
}

// mountTree returns the container's mount namespace.
func (s *Sentry) mountTree(c *container, req *controlapi.CreateContainerRequest, fds *fileSet) (_ *vfs.Namespace, err error) {
	b := newBuilder(c, req, fds)
	if err := b.rootfs(); err != nil {
		return nil, err
	}
	defer func() {
		b.fs.DecRef()
		if err != nil {
			b.ns.DecRef()
		}
	}()
	for i := range c.spec.Mounts {
		if err := b.mount(i, &c.spec.Mounts[i]); err != nil {
			return nil, err
		}
	}
	if err := b.devices(); err != nil {
		return nil, err
	}
	if err := b.sysctls(); err != nil {
		return nil, err
	}
	if err := b.restrict(); err != nil {
		return nil, err
	}
	return b.ns, nil
}

// hostFS makes the file system of the host tree given for mount index.
func (b *builder) hostFS(index int, source string) (vfs.Filesystem, bool, error) {
	m, ok := b.files[index]
	if !ok {
		return nil, false, errInvalid("the host file of mount %d did not come with the call", index)
	}
	root, err := b.hostRoot(index, m.File)
	if err != nil {
		return nil, false, err
	}
	key, coherence := "file-access-mounts", gofer.Shared
	if index == controlapi.RootfsIndex {
		key, coherence = "file-access", gofer.Exclusive
	}
	switch b.s.conf.Options[key] {
	case "exclusive":
		coherence = gofer.Exclusive
	case "shared":
		coherence = gofer.Shared
	}
	fs, err := b.s.gofer.New(gofer.Options{RootFD: root, Coherence: coherence, Source: source, Destination: b.destination(index)})
	return fs, m.IsDir, err
}

// hostRoot returns the root of a host tree as the client's backend holds it: the
// gofer's in remote mode, else the descriptor that came with the call.
func (b *builder) hostRoot(index, file int) (int, error) {
	if b.s.remote != nil {
		ref, err := b.s.remote.Attach(b.c.id, index)
		if err != nil {
			return 0, fmt.Errorf("the gofer does not give mount %d: %w", index, err)
		}
		return ref, nil
	}
	f, err := b.fds.take(file)
	if err != nil {
		return 0, err
	}
	if f == nil {
		return 0, errInvalid("the host file of mount %d did not come with the call", index)
	}
	return detach(f)
}

// destination is where mount index goes in the container, cleaned.
func (b *builder) destination(index int) string {
	if index == controlapi.RootfsIndex {
		return "/"
	}
	return path.Clean("/" + b.c.spec.Mounts[index].Destination)
}

// rootfs mounts the image, with a layer over it that takes the writes unless
// they go to the host. A read-only root has the layer too: mount points that the image
// lacks are made in it before it is closed.
func (b *builder) rootfs() error {
	lower, err := b.lower()
	if err != nil {
		return err
	}
	if b.req.Upper == nil {
		flags := vfs.MountFlags(0)
		if b.req.RootImage != nil {
			flags = unix.MS_RDONLY
		}
		b.setRoot(lower, flags)
		return nil
	}
	upper := tmpfs.New(b.who, tmpfs.Config{
		Memory: b.s.memory, Account: b.c.account, Upper: true, Source: "none", Mode: 0o755,
		Size: (b.req.Upper.SizeBytes + mem.PageSize - 1) &^ (mem.PageSize - 1),
	})
	fs, err := overlay.New(b.who, overlay.Config{Lower: []vfs.Filesystem{lower}, Upper: upper})
	if err != nil {
		return err
	}
	b.setRoot(fs, 0)
	return nil
}

// lower is the container's root without what it writes.
func (b *builder) lower() (vfs.Filesystem, error) {
	if b.req.RootImage != nil {
		return b.rootImage()
	}
	fs, isDir, err := b.hostFS(controlapi.RootfsIndex, "none")
	if err != nil {
		return nil, err
	}
	if !isDir {
		fs.Release()
		return nil, errInvalid("root.path: not a directory")
	}
	return fs, nil
}

// rootImage is the file system in the image that is the container's root.
func (b *builder) rootImage() (vfs.Filesystem, error) {
	r := b.req.RootImage
	if r.Type != "erofs" {
		return nil, errInvalid("a root of type %q is not supported", r.Type)
	}
	f, err := b.fds.take(r.File)
	if err == nil && f == nil {
		err = errInvalid("the image of the root did not come with the call")
	}
	if err != nil {
		return nil, err
	}
	fs, err := erofs.New(erofs.Options{Image: f, Memory: b.s.memory, Account: b.c.account, Destination: "/"})
	if err != nil {
		f.Close()
		return nil, errInvalid("the image of the root cannot be used: %v", err)
	}
	return fs, nil
}

// setRoot starts the mount tree with fs, which it takes over.
func (b *builder) setRoot(fs vfs.Filesystem, flags vfs.MountFlags) {
	b.ns = vfs.NewNamespace(fs, flags)
	root := b.ns.Root()
	b.fs = vfs.NewFSContext(root, root, 0)
	root.DecRef()
}

// tmpfs makes a tmpfs that is charged to the container.
func (b *builder) tmpfs(source, data string) (vfs.Filesystem, error) {
	conf := tmpfs.Config{Memory: b.s.memory, Account: b.c.account, Source: source}
	if err := tmpfs.ParseOptions(&conf, data); err != nil {
		return nil, err
	}
	return tmpfs.New(b.who, conf), nil
}

// at names a path in the container.
func (b *builder) at(name string, flags vfs.LookupFlags) vfs.At {
	return vfs.At{FS: b.fs, Name: name, Flags: flags}
}

// mount adds mount number i of the spec.
func (b *builder) mount(i int, m *specs.Mount) error {
	dest := path.Clean("/" + m.Destination)
	opts, err := parseMountOptions(i, m.Type, m.Options)
	if err != nil {
		return errInvalid("%v", err)
	}
	if len(m.UIDMappings) > 0 || len(m.GIDMappings) > 0 {
		return errInvalid("mounts[%d].uidMappings: id-mapped mounts are not supported", i)
	}
	if b.c.isPodShm(m) {
		mnt, err := b.s.podShm(b.who, m.Source, vfs.MountFlags(opts.flags))
		if err == nil {
			err = b.attachMount(dest, mnt, true)
		}
		if err != nil {
			return errInvalid("mounts[%d]: cannot mount at %q: %v", i, m.Destination, err)
		}
		return nil
	}
	var fs vfs.Filesystem
	isDir := true
	switch {
	case opts.bind:
		fs, isDir, err = b.hostFS(i, "none")
	default:
		fs, err = b.newFS(i, m, opts)
	}
	if err != nil {
		return err
	}
	if err := b.attach(dest, fs, isDir, vfs.MountFlags(opts.flags)); err != nil {
		return errInvalid("mounts[%d]: cannot mount at %q: %v", i, m.Destination, err)
	}
	return nil
}

// newFS makes a file system that the Sentry itself provides.
func (b *builder) newFS(i int, m *specs.Mount, opts mountOpts) (vfs.Filesystem, error) {
	typ, data := m.Type, strings.Join(opts.data, ",")
	source := m.Source
	if source == "" {
		source = "none"
	}
	switch typ {
	case "tmpfs":
		fs, err := b.tmpfs(source, data)
		if err != nil {
			return nil, errInvalid("mounts[%d]: tmpfs options %q: %v", i, data, err)
		}
		return fs, nil
	case "mqueue":
		return syscalls.Queues(b.c.kernel.IPC(), b.c.kernel).View(), nil
	case "cgroup":
		typ = "cgroup2" // the guest sees the unified hierarchy, whatever the host has
	}
	fs, err := b.s.pseudoFS(b.c, typ, source, data)
	if err == unix.ENODEV {
		return nil, errInvalid("mounts[%d]: file system type %q is not supported", i, m.Type)
	}
	if err != nil {
		return nil, errInvalid("mounts[%d]: %s options %q: %v", i, m.Type, data, err)
	}
	return fs, nil
}

// attach mounts fs, which it takes over, at dest and makes dest if it is not there.
func (b *builder) attach(dest string, fs vfs.Filesystem, isDir bool, flags vfs.MountFlags) error {
	if err := b.makePoint(dest, isDir); err != nil {
		fs.Release()
		return err
	}
	return vfs.MountAt(b.who, b.at(dest, 0), fs, flags)
}

// attachMount is attach for a mount, which it takes over.
func (b *builder) attachMount(dest string, m *vfs.Mount, isDir bool) error {
	if err := b.makePoint(dest, isDir); err != nil {
		m.DecRef()
		return err
	}
	return vfs.AttachAt(b.who, b.at(dest, 0), m)
}

// makePoint makes a mount point, and its parents, as runc does.
func (b *builder) makePoint(dest string, isDir bool) error {
	if p, err := vfs.LookupAt(b.who, b.at(dest, 0)); err == nil {
		p.DecRef()
		return nil
	} else if err != unix.ENOENT {
		return err
	}
	dir := dest
	if !isDir {
		dir = path.Dir(dest)
	}
	if err := b.mkdirAll(dir, 0o755); err != nil || isDir {
		return err
	}
	f, err := vfs.OpenAt(b.who, b.at(dest, 0), unix.O_CREAT|unix.O_RDONLY, 0o644)
	if err != nil {
		return err
	}
	f.DecRef()
	return nil
}

// mkdirAll makes a directory and its parents.
func (b *builder) mkdirAll(dir string, mode uint32) error {
	for i := 1; i <= len(dir); i++ {
		if i < len(dir) && dir[i] != '/' {
			continue
		}
		if err := vfs.MkdirAt(b.who, b.at(dir[:i], 0), mode); err != nil && err != unix.EEXIST {
			return err
		}
	}
	return nil
}

// devices fills /dev with the default nodes, the spec's and the usual links.
func (b *builder) devices() error {
	if err := b.mkdirAll("/dev", 0o755); err != nil {
		return errInvalid("cannot make /dev: %v", err)
	}
	for _, n := range dev.Default {
		if err := b.mknod("/dev/"+n.Name, unix.S_IFCHR|0o666, unix.Mkdev(n.Major, n.Minor), 0, 0); err != nil {
			return errInvalid("cannot make /dev/%s: %v", n.Name, err)
		}
	}
	for _, l := range [][2]string{
		{"/proc/self/fd", "/dev/fd"}, {"/proc/self/fd/0", "/dev/stdin"},
		{"/proc/self/fd/1", "/dev/stdout"}, {"/proc/self/fd/2", "/dev/stderr"}, {"pts/ptmx", "/dev/ptmx"},
	} {
		if err := vfs.SymlinkAt(b.who, l[0], b.at(l[1], vfs.NoFollow)); err != nil && err != unix.EEXIST {
			return errInvalid("cannot make %s: %v", l[1], err)
		}
	}
	if b.c.spec.Linux == nil {
		return nil
	}
	for i, d := range b.c.spec.Linux.Devices {
		if err := b.device(i, &d); err != nil {
			return err
		}
	}
	return nil
}

// device makes one node of linux.devices. Host devices are out of a guest's
// reach, so that only devices the Sentry implements can be asked for.
func (b *builder) device(i int, d *specs.LinuxDevice) error {
	var kind uint32
	switch d.Type {
	case "c", "u":
		kind = unix.S_IFCHR
	case "p":
		kind = unix.S_IFIFO
	default:
		return errInvalid("linux.devices[%d]: %s has type %q: only character devices and fifos are supported", i, d.Path, d.Type)
	}
	if kind == unix.S_IFCHR && !dev.Known(uint32(d.Major), uint32(d.Minor)) {
		return errInvalid("linux.devices[%d]: device %d:%d (%s) is not available in the sandbox", i, d.Major, d.Minor, d.Path)
	}
	mode, uid, gid := uint32(0o666), uint32(0), uint32(0)
	if d.FileMode != nil {
		mode = uint32(*d.FileMode) & 0o7777
	}
	if d.UID != nil {
		uid = *d.UID
	}
	if d.GID != nil {
		gid = *d.GID
	}
	p := path.Clean("/" + d.Path)
	if err := b.mkdirAll(path.Dir(p), 0o755); err != nil {
		return errInvalid("linux.devices[%d]: cannot make the directory of %s: %v", i, d.Path, err)
	}
	if err := b.mknod(p, kind|mode, unix.Mkdev(uint32(d.Major), uint32(d.Minor)), uid, gid); err != nil {
		return errInvalid("linux.devices[%d]: cannot make %s: %v", i, d.Path, err)
	}
	return nil
}

func (b *builder) mknod(name string, mode uint32, rdev uint64, uid, gid uint32) error {
	err := vfs.MknodAt(b.who, b.at(name, vfs.NoFollow), mode, rdev)
	if err == unix.EEXIST {
		return nil
	}
	if err == nil && (uid != 0 || gid != 0) {
		err = vfs.ChownAt(b.who, b.at(name, vfs.NoFollow), uid, gid)
	}
	return err
}

// sysctls writes linux.sysctl through the container's own /proc/sys, so that
// what is not there is refused by name.
func (b *builder) sysctls() error {
	if b.c.spec.Linux == nil || len(b.c.spec.Linux.Sysctl) == 0 {
		return nil
	}
	fs, err := b.s.pseudoFS(b.c, "proc", "proc", "")
	if err != nil {
		return err
	}
	mnt := vfs.NewMount(fs, 0)
	defer mnt.DecRef()
	for k, v := range b.c.spec.Linux.Sysctl {
		name := "sys/" + strings.ReplaceAll(k, ".", "/")
		f, err := vfs.OpenAt(b.who, vfs.At{Dir: mnt.Root(), Name: name, Flags: vfs.ResolveBeneath}, unix.O_WRONLY, 0)
		if err != nil {
			return errInvalid("linux.sysctl: %q is not supported: %v", k, err)
		}
		_, err = f.Write(b.who, kernelBuf(v))
		f.DecRef()
		if err != nil {
			return errInvalid("linux.sysctl: cannot set %q to %q: %v", k, v, err)
		}
	}
	return nil
}

// restrict closes what the spec closes, once everything is in place.
func (b *builder) restrict() error {
	if l := b.c.spec.Linux; l != nil {
		for _, p := range l.ReadonlyPaths {
			if err := b.readOnly(p); err != nil && err != unix.ENOENT {
				return errInvalid("linux.readonlyPaths: cannot make %q read-only: %v", p, err)
			}
		}
		for _, p := range l.MaskedPaths {
			if err := b.mask(p); err != nil && err != unix.ENOENT {
				return errInvalid("linux.maskedPaths: cannot mask %q: %v", p, err)
			}
		}
	}
	if b.c.spec.Root.Readonly {
		root := b.fs.Root()
		defer root.DecRef()
		root.Mount.SetFlags(root.Mount.Flags() | unix.MS_RDONLY)
	}
	return nil
}

// readOnly mounts a path over itself, read-only.
func (b *builder) readOnly(p string) error {
	at := b.at(p, 0)
	if err := vfs.BindAt(b.who, at, at, true); err != nil {
		return err
	}
	over, err := vfs.LookupAt(b.who, at)
	if err != nil {
		return err
	}
	defer over.DecRef()
	over.Mount.SetFlags(over.Mount.Flags() | unix.MS_RDONLY)
	return nil
}

// mask hides a path: a file behind /dev/null, a directory behind an empty one.
func (b *builder) mask(p string) error {
	at := b.at(p, 0)
	over, err := vfs.LookupAt(b.who, at)
	if err != nil {
		return err
	}
	st, err := over.Dentry.Inode().Stat(b.who, 0)
	over.DecRef()
	if err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return vfs.BindAt(b.who, b.at("/dev/null", 0), at, false)
	}
	fs, err := b.tmpfs("tmpfs", "size=4096,mode=755")
	if err != nil {
		return err
	}
	return vfs.MountAt(b.who, at, fs, unix.MS_RDONLY)
}
