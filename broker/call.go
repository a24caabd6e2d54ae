package broker

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
)

// Call asks any engine process for something by name and returns its answer, both as JSON
// of the engine's contract. ErrNoResponders when no engine process is there; 5 s if ctx has
// no deadline.
func (c *Client) Call(ctx context.Context, name string, payload []byte) ([]byte, error) {
	if !ValidName(name) {
		return nil, fmt.Errorf("call %q: not a call's name", name)
	}
	m, err := c.l.request(ctx, "call "+name, callSubject(name), payload)
	if err != nil {
		return nil, err
	}
	return m.Data, nil
}

// OnCall answers the calls of one name; one engine process answers each. h is called from
// one goroutine and answers later, from any, by calling reply once.
func (b *Broker) OnCall(name string, h func(payload []byte, reply func([]byte))) (stop func(), err error) {
	return b.l.subscribe(callSubject(name), serverQueue, func(m *nats.Msg) {
		h(m.Data, func(data []byte) { b.answer("answer call "+name, m.Reply, data, nil) })
	})
}

func callSubject(name string) string { return "call." + name }

// Watch calls down when one of the connections is lost and up when all are back; both from
// one goroutine at a time, in order.
func (b *Broker) Watch(down, up func()) { watchBoth(b.l, b.in, down, up) }
