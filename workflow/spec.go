package workflow

import (
	"encoding/json"
	"time"
)

// Mode says how the tasks of one instance spread over the workers of its app.
type Mode string

// The execute modes.
const (
	// Standalone runs one task on one worker.
	Standalone Mode = "standalone"
	// Broadcast runs one share on every live worker that fits.
	Broadcast Mode = "broadcast"
	// Map runs a root task that emits sub-tasks, and every sub-task.
	Map Mode = "map"
	// MapReduce is Map, and one reduce task over the results.
	MapReduce Mode = "map_reduce"
)

// Lane is the priority class of an instance.
type Lane string

// The lanes, highest first. Workers take them with weights 8:4:1.
const (
	LaneHigh   Lane = "high"
	LaneNormal Lane = "normal"
	LaneBulk   Lane = "bulk"
)

// PoolAny is the pool that holds every worker of an app.
const PoolAny = "any"

// Routing says who picks the worker of a task.
type Routing string

// The routings. RoutingLane lets whichever worker is free pull the task; every other one
// is a choice of the owner and is dispatched directed.
const (
	RoutingLane       Routing = "lane"
	RoutingRandom     Routing = "random"
	RoutingRoundRobin Routing = "round_robin"
	RoutingHash       Routing = "consistent_hash"
	RoutingLeast      Routing = "least_loaded"
	RoutingDesignated Routing = "designated"
)

// Emit says when the sub-tasks of a mapper may be fed to workers.
type Emit string

// The emit modes.
const (
	// EmitStream feeds sub-tasks while the mapper is still running (default).
	EmitStream Emit = "stream"
	// EmitAtomic feeds nothing before the root mapper has succeeded.
	EmitAtomic Emit = "atomic"
)

// Spec is how an instance is run: the processor, the mode and the policies. A Job holds
// one; a job node of a workflow names a Job or carries one inline. A running instance
// keeps the Spec it started with.
type Spec struct {
	// Processor is the registered name of the user's code. Required.
	Processor string `json:"processor"`
	// Mode defaults to Standalone.
	Mode Mode `json:"mode,omitempty"`
	// Params is the JSON value handed to the processor; at most 256 KiB encoded.
	Params json.RawMessage `json:"params,omitempty"`
	// Lane defaults to LaneNormal.
	Lane Lane `json:"lane,omitempty"`
	// Pool defaults to PoolAny; otherwise only workers with that tag run it.
	Pool string `json:"pool,omitempty"`

	// Routing defaults to RoutingLane.
	Routing Routing `json:"routing,omitempty"`
	// RoutingKey is what RoutingHash hashes; the business key of the instance if empty.
	RoutingKey string `json:"routing_key,omitempty"`
	// Designated names the workers of RoutingDesignated.
	Designated []string `json:"designated,omitempty"`
	// Labels must all be present on a worker with these values.
	Labels map[string]string `json:"labels,omitempty"`
	// MaxWorkers bounds how many different workers take part; 0 is no bound.
	MaxWorkers int `json:"max_workers,omitempty"`
	// MinCPU is free cores, MinMemory and MinDisk are free bytes that a worker must have.
	MinCPU    float64 `json:"min_cpu,omitempty"`
	MinMemory int64   `json:"min_memory,omitempty"`
	MinDisk   int64   `json:"min_disk,omitempty"`

	// Concurrency bounds the chunks of all instances of the job in flight over the
	// cluster; 0 is no bound.
	Concurrency int `json:"concurrency,omitempty"`
	// MaxRunning bounds the instances of the job under way over the cluster, whoever started
	// them; 0 is no bound. What is over it waits, and a fire does what its overlap policy says.
	MaxRunning int `json:"max_running,omitempty"`
	// Rate bounds the sub-tasks fed per second and run; 0 is no bound.
	Rate float64 `json:"rate,omitempty"`

	// Timeout bounds one attempt of the instance, from its first start; 0 is no bound.
	Timeout Duration `json:"timeout,omitempty"`
	// TaskTimeout bounds one task, from its own start at the worker; 0 is no bound.
	TaskTimeout Duration `json:"task_timeout,omitempty"`
	// DispatchTimeout ends an instance that found no worker, counted from when it was
	// due; 0 waits for ever.
	DispatchTimeout Duration `json:"dispatch_timeout,omitempty"`

	// Retry is about the whole instance, TaskRetry about one sub-task, share or reduce.
	Retry     Retry `json:"retry,omitzero"`
	TaskRetry Retry `json:"task_retry,omitzero"`

	// MaxFailed is how many sub-tasks may fail before the run does.
	MaxFailed Budget `json:"max_failed,omitzero"`
	// Emit defaults to EmitStream.
	Emit Emit `json:"emit,omitempty"`
	// StageBytes bounds what one map run may hold in the stage; 0 is a quarter of the stream.
	StageBytes int64 `json:"stage_bytes,omitempty"`

	// Rule decides a broadcast: "all" (default), "any" or "N%" of the shares succeeded.
	Rule string `json:"rule,omitempty"`
	// Waves are growing percentages of the workers of a broadcast, such as 10, 50, 100;
	// empty is one wave.
	Waves []int `json:"waves,omitempty"`
}

// Retry is a retry policy. The zero value never retries.
type Retry struct {
	// Max is how many further attempts may follow the first; 0..100.
	Max int `json:"max,omitempty"`
	// Delay is the pause before the first further attempt; default 1 s when Max > 0.
	Delay Duration `json:"delay,omitempty"`
	// Backoff multiplies the delay from attempt to attempt; default 2, at least 1.
	Backoff float64 `json:"backoff,omitempty"`
	// MaxDelay bounds the delay; default 5 min.
	MaxDelay Duration `json:"max_delay,omitempty"`
	// Jitter is the share of the delay that is spread, 0..1; default 0.1.
	Jitter *float64 `json:"jitter,omitempty"`
}

// Budget is how much failure a map run bears: at most Count sub-tasks, or Percent of all
// that were emitted. The zero value bears none.
type Budget struct {
	Count   int64   `json:"count,omitempty"`
	Percent float64 `json:"percent,omitempty"`
}

// Duration is a time.Duration that reads and writes as "1m30s" in documents.
type Duration time.Duration

// MarshalJSON writes the duration as a string such as "1m30s".
func (d Duration) MarshalJSON() ([]byte, error) {
	return json.Marshal(time.Duration(d).String())
}

// UnmarshalJSON reads a string such as "1m30s".
func (d *Duration) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return err
	}
	*d = Duration(v)
	return nil
}

// Milliseconds is the duration in whole milliseconds.
func (d Duration) Milliseconds() int64 { return time.Duration(d).Milliseconds() }
