package processor

import (
	"os"
	"runtime"
	"time"

	"github.com/fanjet/fanjet/broker"
)

// load is what the machine has left; -1 is unknown.
type load struct {
	cpu    float64 // cores
	memory int64   // bytes
	disk   int64   // bytes
}

// keepBeating beats until the worker ends, the drain included.
func (w *Worker) keepBeating(every time.Duration) {
	gauge := newLoadGauge()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for seq := uint64(1); ; seq++ {
		b := w.beat()
		l := gauge.read()
		b.Seq, b.FreeCPU, b.FreeMemory, b.FreeDisk = seq, l.cpu, l.memory, l.disk
		w.tell(w.link.Beat(b))
		if w.cfg.Metrics != nil {
			w.cfg.Metrics(w.Stats())
		}
		select {
		case <-w.life.Done():
			return
		case <-tick.C:
		}
	}
}

// beat is what the worker says of itself now.
func (w *Worker) beat() *broker.Beat {
	host, _ := os.Hostname() // shown only; empty is well
	b := &broker.Beat{
		App: w.cfg.App, Worker: w.cfg.Name, Incarnation: w.incarnation,
		Version: w.cfg.Version, SDK: sdkVersion, Host: host, PID: os.Getpid(),
		SentAt: time.Now().UnixMilli(), Pools: w.cfg.pools(), Labels: w.cfg.Labels,
		Processors: w.processors(), Slots: w.cfg.Slots, Busy: w.slots.taken(),
		CPUs: float64(runtime.NumCPU()), FreeCPU: -1, FreeMemory: -1, FreeDisk: -1,
	}
	// The first beat is the registration: a job that asks for memory or disk must not find
	// them unknown. Free CPU needs two readings.
	l := newLoadGauge().read()
	b.FreeMemory, b.FreeDisk = l.memory, l.disk
	w.mu.Lock()
	b.Draining = w.draining
	held := make([]*run, 0, len(w.held))
	for _, r := range w.held {
		held = append(held, r)
	}
	w.mu.Unlock()
	for _, r := range held {
		r.mu.Lock()
		asking := r.asking
		r.mu.Unlock()
		if asking {
			continue // whether it is this worker's is the question
		}
		b.Held = append(b.Held, r.key())
		if r.c.Directed {
			b.Directed++
		}
	}
	return b
}
