package shim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/containerd/containerd/api/events"
	eventsapi "github.com/containerd/containerd/api/services/ttrpc/events/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// namespaceHeader is the ttrpc metadata key of containerd's namespace.
const namespaceHeader = "containerd-namespace-ttrpc"

const (
	maxQueuedEvents = 4096
	maxEventTries   = 5
	eventTimeout    = 5 * time.Second
)

// topicOf names the topic of a task event.
func topicOf(e proto.Message) (string, error) {
	switch e.(type) {
	case *events.TaskCreate:
		return "/tasks/create", nil
	case *events.TaskStart:
		return "/tasks/start", nil
	case *events.TaskOOM:
		return "/tasks/oom", nil
	case *events.TaskExit:
		return "/tasks/exit", nil
	case *events.TaskDelete:
		return "/tasks/delete", nil
	case *events.TaskExecAdded:
		return "/tasks/exec-added", nil
	case *events.TaskExecStarted:
		return "/tasks/exec-started", nil
	case *events.TaskPaused:
		return "/tasks/paused", nil
	case *events.TaskResumed:
		return "/tasks/resumed", nil
	case *events.TaskCheckpointed:
		return "/tasks/checkpointed", nil
	}
	return "", fmt.Errorf("no topic for %T", e)
}

// forwarder delivers one event; it is a ttrpc client outside tests.
type forwarder interface {
	forward(ctx context.Context, env *types.Envelope) error
	close()
}

// publisher sends events to containerd from one goroutine, so that they arrive
// in the order in which they were queued.
type publisher struct {
	namespace string
	to        forwarder

	mu sync.Mutex
	// mu guards:
	queue  []*types.Envelope
	closed bool

	wake chan struct{} // holds a token when the queue has changed
	done chan struct{} // closed when the goroutine has ended
}

func newPublisher(namespace string, to forwarder) *publisher {
	p := &publisher{namespace: namespace, to: to, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go p.run()
	return p
}

// send queues an event. It never blocks.
func (p *publisher) send(e proto.Message) {
	topic, err := topicOf(e)
	if err != nil {
		slog.Error("event dropped", "err", err)
		return
	}
	p.sendAs(topic, e)
}

// topicRestored tells that the image of a restored container is not needed any
// more. The message is one that containerd can print: TaskCheckpointed, whose
// fields are the container and the path of its image.
const topicRestored = "/runsc/restored"

// sendRestored queues an event with topicRestored.
func (p *publisher) sendRestored(id, image string) {
	p.sendAs(topicRestored, &events.TaskCheckpointed{ContainerID: id, Checkpoint: image})
}

func (p *publisher) sendAs(topic string, e proto.Message) {
	body, err := proto.Marshal(e)
	if err != nil {
		slog.Error("event dropped", "err", err)
		return
	}
	env := &types.Envelope{
		Timestamp: timestamppb.Now(),
		Namespace: p.namespace,
		Topic:     topic,
		// As typeurl writes it: the bare name, without a host part.
		Event: &anypb.Any{TypeUrl: string(e.ProtoReflect().Descriptor().FullName()), Value: body},
	}
	p.mu.Lock()
	if !p.closed {
		if len(p.queue) == maxQueuedEvents {
			p.queue = p.queue[1:]
		}
		p.queue = append(p.queue, env)
	}
	p.mu.Unlock()
	p.kick()
}

func (p *publisher) kick() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// close sends what is queued, for at most the given time.
func (p *publisher) close(patience time.Duration) {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.kick()
	select {
	case <-p.done:
	case <-time.After(patience):
	}
}

// run delivers events until close.
func (p *publisher) run() {
	defer close(p.done)
	defer p.to.close()
	for {
		p.mu.Lock()
		var env *types.Envelope
		if len(p.queue) > 0 {
			env, p.queue = p.queue[0], p.queue[1:]
		}
		closed := p.closed
		p.mu.Unlock()
		if env != nil {
			p.deliver(env)
			continue
		}
		if closed {
			return
		}
		<-p.wake
	}
}

// deliver tries until the event has arrived or is given up: later events wait
// behind it, for order is worth more than speed here.
func (p *publisher) deliver(env *types.Envelope) {
	for try := 1; ; try++ {
		ctx, cancel := context.WithTimeout(context.Background(), eventTimeout)
		err := p.to.forward(ctx, env)
		cancel()
		if err == nil {
			return
		}
		if try == maxEventTries {
			slog.Error("event dropped", "topic", env.Topic, "err", err)
			return
		}
		time.Sleep(time.Duration(try) * 200 * time.Millisecond)
	}
}

// ttrpcForwarder sends events to containerd's ttrpc socket.
type ttrpcForwarder struct {
	address   string
	namespace string
	client    *ttrpc.Client
}

func (f *ttrpcForwarder) forward(ctx context.Context, env *types.Envelope) error {
	if f.address == "" {
		return errors.New("no ttrpc address")
	}
	if f.client == nil {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "unix", strings.TrimPrefix(f.address, "unix://"))
		if err != nil {
			return err
		}
		f.client = ttrpc.NewClient(conn)
	}
	md := ttrpc.MD{}
	md.Set(namespaceHeader, f.namespace)
	_, err := eventsapi.NewTTRPCEventsClient(f.client).Forward(ttrpc.WithMetadata(ctx, md), &eventsapi.ForwardRequest{Envelope: env})
	if err != nil {
		f.close()
	}
	return err
}

func (f *ttrpcForwarder) close() {
	if f.client != nil {
		f.client.Close()
		f.client = nil
	}
}
