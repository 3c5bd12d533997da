package shim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"time"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
)

// How long the daemon waits for things before it ends.
const (
	lastCalls  = 2 * time.Second
	lastEvents = 3 * time.Second
	lastLogs   = loggerEnd + 2*time.Second
)

// serve is the daemon. Its working directory is the bundle it was started for.
func serve(f *flags) error {
	setLogger(openLog("log"), f.debug)
	// The daemon mostly waits: a small heap is worth more than speed.
	debug.SetGCPercent(40)
	bundle, err := os.Getwd()
	if err != nil {
		return err
	}
	l, err := inheritedListener()
	if err != nil {
		return err
	}
	address := f.socket
	events := newPublisher(f.namespace, &ttrpcForwarder{address: os.Getenv("TTRPC_ADDRESS"), namespace: f.namespace})
	s := newService(f.namespace, daemonGroup(f), address, events, f.debug)

	params := inheritedParams()
	s.startEarly(f.id, bundle, optionsOf(params))

	server, err := ttrpc.NewServer(ttrpc.WithServerHandshaker(ttrpc.UnixSocketRequireSameUser()))
	if err != nil {
		return err
	}
	taskapi.RegisterTTRPCTaskService(server, s)
	served := make(chan error, 1)
	go func() { served <- server.Serve(context.Background(), l) }()

	signals := make(chan os.Signal, 4)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT)
	select {
	case <-s.stop:
	case sig := <-signals:
		slog.Info("ending", "signal", sig.String())
		removeSocket(address)
	case err := <-served:
		if !errors.Is(err, ttrpc.ErrServerClosed) {
			slog.Error("serve", "err", err)
		}
		removeSocket(address)
	}
	s.end(server)
	return nil
}

// end stops what is left. Sandboxes have ended unless a signal ends us.
func (s *service) end(server *ttrpc.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), lastCalls)
	defer cancel()
	// The last call's answer goes out first.
	if err := server.Shutdown(ctx); err != nil {
		server.Close()
	}
	s.dropEarly()
	s.mu.Lock()
	sb := s.sb
	s.mu.Unlock()
	if sb != nil {
		sb.stop()
	}
	s.events.close(lastEvents)
	loggers.wait(lastLogs)
}

func inheritedListener() (net.Listener, error) {
	unix.CloseOnExec(listenerFD)
	file := os.NewFile(listenerFD, "listener")
	if file == nil {
		return nil, errors.New("no listening socket: the daemon is started by the start action")
	}
	defer file.Close()
	l, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("listening socket: %w", err)
	}
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false)
	}
	return l, nil
}

// inheritedParams reads what start was given; without it the defaults hold.
func inheritedParams() *bootapi.BootstrapParams {
	unix.CloseOnExec(paramsFD)
	file := os.NewFile(paramsFD, "params")
	params := &bootapi.BootstrapParams{}
	if file == nil {
		return params
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxParams))
	if err == nil {
		err = proto.Unmarshal(data, params)
	}
	if err != nil {
		slog.Error("bootstrap parameters", "err", err)
		return &bootapi.BootstrapParams{}
	}
	return params
}
