package server

import (
	"log/slog"
	"time"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
)

// Config of a Server.
type Config struct {
	// Name is shown to people; default the host's name and the process id.
	Name string
	// Store is the truth. Required; closed by whoever opened it.
	Store engine.Store
	// Broker carries the work. Required; closed by whoever connected it.
	Broker *broker.Broker
	// AckWait is what workers are told: how long the broker waits for a word about a chunk
	// before it delivers it again. It must be the Broker's. Default 8 s.
	AckWait time.Duration
	// BeatEvery is the workers' beat; default 2 s. A worker is dead after three of them.
	BeatEvery time.Duration
	// Lease is how long a server may be silent before its shards are taken over; default 3 s.
	Lease time.Duration
	// Silent is how long an instance may be silent before its messages are looked for;
	// default 30 s.
	Silent time.Duration
	// MaxLost is how often the worker of a task may die, or be silent for so long that it
	// counts as dead, before the task fails; default 3. A run that was granted to a worker
	// counts, whether it had begun or not.
	MaxLost int32
	// Checks look at params when they are saved, by the name of the processor; default none.
	Checks map[string]Check
	// KeepHistory is how long final instances and workflow instances are kept after they were
	// made, with everything about them; default 30 days, negative for ever. Verifications reach
	// as far back.
	KeepHistory time.Duration
	// KeepLedger is how long skipped fires and dead letters are kept; default 180 days, negative
	// for ever.
	KeepLedger time.Duration
	// Log defaults to slog.Default.
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	def := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&c.AckWait, 8*time.Second)
	def(&c.BeatEvery, 2*time.Second)
	def(&c.Lease, 3*time.Second)
	def(&c.Silent, 30*time.Second)
	if c.KeepHistory == 0 {
		c.KeepHistory = 30 * 24 * time.Hour
	}
	if c.KeepLedger == 0 {
		c.KeepLedger = 180 * 24 * time.Hour
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
}
