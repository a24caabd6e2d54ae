package brokertest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fanjet/fanjet/broker"
)

func TestMain(m *testing.M) {
	serveIfChild()
	goleak.VerifyTestMain(m)
}

func TestBothEnds(t *testing.T) {
	Exercise(t, func(t testing.TB, c broker.Config) (*broker.Broker, *broker.Client) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		b, err := broker.Connect(ctx, c)
		require.NoError(t, err)
		w, err := broker.Dial(ctx, c.Options)
		require.NoError(t, err)
		return b, w
	})
}
