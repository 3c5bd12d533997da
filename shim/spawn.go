package shim

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// spawner starts child processes from one thread that lives as long as the
// daemon: a child's parent-death signal comes when the thread that cloned it
// ends, and entering a network namespace is a thread's own affair.
type spawner struct {
	once sync.Once
	jobs chan spawnJob
}

type spawnJob struct {
	cmd   *exec.Cmd
	netns string
	err   chan error
}

// spawns is the daemon's spawner.
var spawns spawner

// start starts cmd, in the network namespace at the path netns if that is not
// empty. The child is killed when the daemon ends.
func (s *spawner) start(cmd *exec.Cmd, netns string) error {
	s.once.Do(func() {
		s.jobs = make(chan spawnJob)
		go s.run()
	})
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = unix.SIGKILL
	job := spawnJob{cmd: cmd, netns: netns, err: make(chan error, 1)}
	s.jobs <- job
	return <-job.err
}

// run serves start for the life of the daemon.
func (s *spawner) run() {
	runtime.LockOSThread()
	for job := range s.jobs {
		job.err <- startIn(job.cmd, job.netns)
	}
}

// startIn starts cmd with the calling thread, which must be locked, in another
// network namespace.
func startIn(cmd *exec.Cmd, netns string) error {
	if netns == "" {
		return cmd.Start()
	}
	target, err := os.Open(netns)
	if err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	defer target.Close()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer home.Close()
	if err := unix.Setns(int(target.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the network namespace %s: %w", netns, err)
	}
	startErr := cmd.Start()
	if err := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); err != nil {
		// The thread is in the pod's network for good: nothing may start from
		// it again.
		panic(fmt.Sprintf("leave the network namespace %s: %v", netns, err))
	}
	return startErr
}

// identity maps every id to itself: the Sentry acts on host files with the ids
// that the guest has.
var identity = []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1<<32 - 1}}

// selfCommand makes a command that runs this binary in another role.
func selfCommand(role string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", append([]string{role}, args...)...)
	cmd.Args[0] = os.Args[0]
	// containerd's environment is not for children: GOMAXPROCS=2 among it.
	cmd.Env = []string{}
	if v := os.Getenv("GODEBUG"); v != "" {
		cmd.Env = append(cmd.Env, "GODEBUG="+v)
	}
	return cmd
}

// sandboxCommand runs the sandbox in namespaces of its own.
func sandboxCommand(id string, newNet bool) *exec.Cmd {
	cmd := selfCommand("sandbox", "-id", id)
	flags := uintptr(unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS)
	if newNet {
		flags |= unix.CLONE_NEWNET
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:                 flags,
		UidMappings:                identity,
		GidMappings:                identity,
		GidMappingsEnableSetgroups: true,
		Setpgid:                    true,
	}
	return cmd
}

// goferCommand runs the gofer. It stays in the host's user namespace, whose
// privileges it needs for device nodes and trusted attributes.
func goferCommand() *exec.Cmd {
	cmd := selfCommand("gofer")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET,
		Setpgid:    true,
	}
	return cmd
}

// socketpair returns a pair of close-on-exec sockets.
func socketpair(typ int) (a, b *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, typ|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "socket"), os.NewFile(uintptr(fds[1]), "socket"), nil
}
