package broker

import (
	"fmt"

	"github.com/nats-io/nats.go"
)

// PublishEvents tells the engine processes that want to hear of the app's events; lost when
// nobody listens. ErrTooLarge: more than MaxEvents, or than the broker takes.
func (b *Broker) PublishEvents(app string, e *EventBatch) error {
	data, err := EncodeEvents(e)
	if err != nil {
		return fmt.Errorf("events of app %s: %w", app, err)
	}
	return b.PublishEvent(app, eventLive, data)
}

// OnEvents hears what PublishEvents tells of the app, its own too, from one goroutine.
func (b *Broker) OnEvents(app string, h func(*EventBatch)) (stop func(), err error) {
	if err := checkNames("hear events", app); err != nil {
		return nil, err
	}
	return b.l.subscribe(eventSubject(app, eventLive), "", func(m *nats.Msg) {
		e, err := DecodeEvents(m.Data)
		if err != nil {
			b.l.undecodable("event batch", m.Subject, err)
			return
		}
		h(e)
	})
}

// PublishInterest tells all engine processes that this one wants to hear of the app's
// events. It is to be repeated: a lost one costs until the next.
func (b *Broker) PublishInterest(app string, n *Interest) error {
	if err := checkNames("publish interest", app); err != nil {
		return err
	}
	data, err := EncodeInterest(n)
	if err != nil {
		return fmt.Errorf("interest in app %s: %w", app, err)
	}
	return b.l.publish("interest in app "+app, interestSubject(app), data)
}

// OnInterest hears of all interests, its own too, from one goroutine.
func (b *Broker) OnInterest(h func(app string, n *Interest)) (stop func(), err error) {
	return b.l.subscribe(interestAll, "", func(m *nats.Msg) {
		n, err := DecodeInterest(m.Data)
		if err != nil {
			b.l.undecodable("interest", m.Subject, err)
			return
		}
		h(m.Subject[len(interestHead):], n)
	})
}
