//go:build unix

package processor

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
)

// SIGTERM drains.
func TestWorker_RunUntilSignal(t *testing.T) {
	t.Parallel()
	f := newFake()
	w := NewWorker(Config{App: "a", Name: "w1", Logger: quietLogger()}).Register("p", echo)
	w.dial = func(context.Context, broker.Options) (link, error) { return f, nil }
	done := make(chan error, 1)
	go func() { done <- w.RunUntilSignal(t.Context()) }()
	require.Eventually(t, func() bool { f.mu.Lock(); defer f.mu.Unlock(); return len(f.beats) > 0 }, 10*time.Second, time.Millisecond)
	require.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGTERM))
	require.NoError(t, <-done)
	require.True(t, f.beats[len(f.beats)-1].Draining)
	require.ErrorContains(t, w.Run(t.Context()), "has run already")
}
