package boot

import (
	"errors"
	"fmt"
	"os"
	"path"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"runsc/pkg/controlapi"
	"runsc/sentry/fs/host"
	"runsc/sentry/kernel"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// processRequest is what Create and Exec ask to run.
type processRequest struct {
	process *specs.Process
	stdio   controlapi.Stdio
	execID  string
	init    bool
}

func kernelBuf(s string) *mem.UserBuf {
	b := mem.KernelBuf([]byte(s))
	return &b
}

// load makes a process that has its program in memory and waits for Start.
func (c *container) load(r processRequest, fds *fileSet) (*kernel.ThreadGroup, error) {
	p := r.process
	if len(p.Args) == 0 {
		return nil, errInvalid("process.args: empty")
	}
	creds, err := credentials(p)
	if err != nil {
		return nil, errInvalid("%v", err)
	}
	limits, err := rlimits(p)
	if err != nil {
		return nil, errInvalid("%v", err)
	}
	who := newCaller()
	root := c.mounts.Root()
	defer root.DecRef()
	rootFS := vfs.NewFSContext(root, root, 0)
	defer rootFS.DecRef()

	fs, err := c.workDir(who, rootFS, root, p, creds.UID, creds.GID)
	if err != nil {
		return nil, err
	}
	env := withHome(p.Env, p.User.UID, readSmall(who, rootFS, "/etc/passwd"))
	file, err := findProgram(who, fs, p.Args[0], env)
	if err != nil {
		fs.DecRef()
		return nil, err
	}
	table, err := c.stdio(who, rootFS, r.stdio, fds, creds.UID)
	if err != nil {
		fs.DecRef()
		return nil, err
	}
	umask := uint32(0o022)
	if p.User.Umask != nil {
		umask = *p.User.Umask
	}
	fs.SetUmask(umask)
	conf := kernel.ProcessConfig{
		ExecID: r.execID, Init: r.init, Filename: file, Argv: p.Args, Env: env,
		Cred: creds, FS: fs, Files: table, MountNS: c.mounts, Limits: limits,
	}
	if c.seccomp != nil {
		conf.Seccomp = c.seccomp
	}
	c.mounts.IncRef()
	if p.OOMScoreAdj != nil {
		conf.OOMScoreAdj = int32(*p.OOMScoreAdj)
	}
	tg, err := c.kernel.CreateProcess(conf)
	if err == nil || errors.Is(err, kernel.ErrNotRunning) {
		return tg, err
	}
	var e unix.Errno
	if errors.As(err, &e) {
		return nil, errInvalid("exec %q: %s", p.Args[0], execMessage(e))
	}
	return nil, err
}

// execMessage is the text for a failed exec, as strerror(3) has it.
func execMessage(e unix.Errno) string {
	switch e {
	case unix.ENOEXEC:
		return "exec format error"
	case unix.ENOENT:
		return "no such file or directory"
	}
	return e.Error()
}

// workDir returns a context with the process's working directory, which is
// made if it does not exist, as runc does.
func (c *container) workDir(who *caller, rootFS *vfs.FSContext, root vfs.Path, p *specs.Process, uid, gid uint32) (*vfs.FSContext, error) {
	cwd := p.Cwd
	if cwd == "" {
		cwd = "/"
	}
	if !path.IsAbs(cwd) {
		return nil, errInvalid("process.cwd: %q is not an absolute path", cwd)
	}
	b := builder{who: who, fs: rootFS}
	at := vfs.At{FS: rootFS, Name: cwd, Flags: vfs.MustDir}
	dir, err := vfs.LookupAt(who, at)
	if err == unix.ENOENT {
		if err = b.mkdirAll(path.Clean(cwd), 0o755); err == nil {
			if uid != 0 || gid != 0 {
				vfs.ChownAt(who, at, uid, gid)
			}
			dir, err = vfs.LookupAt(who, at)
		}
	}
	if err != nil {
		return nil, errInvalid("process.cwd: cannot enter %q: %v", cwd, err)
	}
	defer dir.DecRef()
	return vfs.NewFSContext(root, dir, 0o022), nil
}

// findProgram looks the command up as execvp(3) does and returns its path.
func findProgram(who *caller, fs *vfs.FSContext, name string, env []string) (string, error) {
	var denied bool
	for _, f := range searchPath(name, env) {
		p, err := vfs.LookupAt(who, vfs.At{FS: fs, Name: f})
		if err != nil {
			denied = denied || err == unix.EACCES
			continue
		}
		st, err := p.Dentry.Inode().Stat(who, 0)
		p.DecRef()
		if err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&0o111 != 0 {
			return f, nil
		}
		denied = true
	}
	switch {
	case denied:
		return "", errInvalid("exec: %q: permission denied", name)
	case path.Base(name) != name:
		return "", errInvalid("exec: %q: stat %s: no such file or directory", name, name)
	}
	return "", errInvalid("exec: %q: executable file not found in $PATH", name)
}

// stdio returns a table with the three standard files. Those of the host
// belong to the process's user, so that it can open /dev/stdout.
func (c *container) stdio(who *caller, rootFS *vfs.FSContext, s controlapi.Stdio, fds *fileSet, uid uint32) (*vfs.FDTable, error) {
	table := vfs.NewFDTable()
	for i, index := range []int{s.Stdin, s.Stdout, s.Stderr} {
		f, err := c.standardFile(who, rootFS, i, index, fds, uid)
		if err == nil {
			if _, err = table.Install(who, f, int32(i), false); err != nil {
				f.DecRef()
			}
		}
		if err != nil {
			table.DecRef(who)
			return nil, fmt.Errorf("cannot set up standard file %d: %w", i, err)
		}
	}
	return table, nil
}

// standardFile makes descriptor n of a process from the host's, or from the
// guest's /dev/null.
func (c *container) standardFile(who *caller, rootFS *vfs.FSContext, n, index int, fds *fileSet, uid uint32) (*vfs.File, error) {
	hf, err := fds.take(index)
	if err != nil {
		return nil, err
	}
	if hf == nil {
		return vfs.OpenAt(who, vfs.At{FS: rootFS, Name: "/dev/null"}, streamFlags(n), 0)
	}
	f, err := newHostFile(hf, n)
	if err == nil {
		err = f.Inode().SetStat(who, &vfs.SetStat{UID: &uid})
	}
	return f, err
}

// streamFlags is the access mode of standard stream n.
func streamFlags(n int) uint32 {
	if n == 0 {
		return unix.O_RDONLY
	}
	return unix.O_WRONLY
}

// newHostFile makes standard stream n of a process from the host's.
func newHostFile(hf *os.File, n int) (*vfs.File, error) {
	fd, err := detach(hf)
	if err != nil {
		return nil, err
	}
	f, err := host.New(fd, streamFlags(n))
	if err == nil {
		host.SetSlot(f, n)
	}
	return f, err
}

// readSmall returns the beginning of a file of the container, "" if there is none.
func readSmall(who *caller, fs *vfs.FSContext, name string) string {
	f, err := vfs.OpenAt(who, vfs.At{FS: fs, Name: name}, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.DecRef()
	data := make([]byte, 64<<10)
	b := mem.KernelBuf(data)
	n, err := f.Read(who, &b)
	if err != nil {
		return ""
	}
	return string(data[:n])
}
