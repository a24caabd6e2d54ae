package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Errors of this package. Driver errors become one of these, wrapped, at this border.
var (
	ErrNoRoom       = errors.New("the stream has no room")        // stage, results, reports or tasks are full
	ErrUnavailable  = errors.New("the broker is not reachable")   // disconnected, no responders, timeout
	ErrNotFound     = errors.New("not found in the broker")       // stream, message or consumer
	ErrTooLarge     = errors.New("too large for one message")     // over the server's max payload
	ErrUndecodable  = errors.New("message cannot be decoded")     // unknown version or damaged
	ErrNoResponders = errors.New("nobody answers on the subject") // no such worker or no server
	ErrClosed       = errors.New("the connection was closed")     // by Close; final
)

// apiError is an error that JetStream answered with.
type apiError struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

func (e *apiError) Error() string {
	return fmt.Sprintf("%s (%d)", e.Description, e.ErrCode)
}

// Codes of JetStream that mean something here.
const (
	codeStreamNotFound   = 10059
	codeConsumerNotFound = 10014
	codeNoMessage        = 10037
	codeStoreFailed      = 10077 // generic: the description says why
	codeNoStorage        = 10047
	codeNoMemory         = 10028
	codeResources        = 10023
	codeTooLarge         = 10054
	codeNoPeers          = 10005 // not enough servers for the replicas, or none with room
	codeNotClustered     = 10074
)

// sentinel is the word of this package for what JetStream answered.
func (e *apiError) sentinel() error {
	switch e.ErrCode {
	case codeStreamNotFound, codeConsumerNotFound, codeNoMessage:
		return ErrNotFound
	case codeNoStorage, codeNoMemory, codeResources:
		return ErrNoRoom
	case codeTooLarge:
		return ErrTooLarge
	case codeStoreFailed:
		// "maximum bytes exceeded", "maximum messages exceeded"; anything else is a store
		// that cannot write now.
		if strings.Contains(e.Description, "maximum") {
			return ErrNoRoom
		}
		return ErrUnavailable
	}
	switch e.Code {
	case 404:
		return ErrNotFound
	case 503:
		return ErrUnavailable
	}
	return nil
}

// awayError is a send while there is no connection. Nothing is buffered here, so the
// driver's words about its buffer would mislead.
type awayError struct {
	op    string
	cause error
}

func (e *awayError) Error() string   { return e.op + ": " + ErrUnavailable.Error() + ": not connected" }
func (e *awayError) Unwrap() []error { return []error{ErrUnavailable, e.cause} }

// border translates an error of the driver. It keeps the driver's error in the chain.
func border(op string, err error) error {
	if err == nil {
		return nil
	}
	for _, known := range []error{ErrNoRoom, ErrUnavailable, ErrNotFound, ErrTooLarge, ErrUndecodable, ErrNoResponders, ErrClosed} {
		if errors.Is(err, known) {
			return fmt.Errorf("%s: %w", op, err)
		}
	}
	if errors.Is(err, nats.ErrReconnectBufExceeded) {
		return &awayError{op, err}
	}
	var word error
	var own *apiError
	var theirs *jetstream.APIError
	switch {
	case errors.As(err, &own):
		word = own.sentinel()
	case errors.As(err, &theirs):
		word = (&apiError{Code: theirs.Code, ErrCode: int(theirs.ErrorCode), Description: theirs.Description}).sentinel()
	case errors.Is(err, nats.ErrMaxPayload):
		word = ErrTooLarge
	case errors.Is(err, context.Canceled):
		word = nil // the caller's own wish
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrNoStreamResponse),
		errors.Is(err, nats.ErrTimeout), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, nats.ErrDisconnected),
		errors.Is(err, nats.ErrConnectionReconnecting), errors.Is(err, nats.ErrStaleConnection),
		errors.Is(err, nats.ErrNoServers), errors.Is(err, jetstream.ErrJetStreamNotEnabled):
		word = ErrUnavailable
	case errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrConnectionDraining):
		word = ErrClosed
	}
	if word == nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return fmt.Errorf("%s: %w: %w", op, word, err)
}
