package storage

import (
	"encoding/binary"

	"github.com/uptrace/bun"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

type instanceRow struct {
	bun.BaseModel `bun:"table:instances"`

	ID         int64  `bun:"id,pk"`
	App        int64  `bun:"app_id"`
	Shard      int16  `bun:"shard"`
	Job        int64  `bun:"job_id"`
	JobVersion int32  `bun:"job_version"`
	Workflow   *int64 `bun:"workflow_id"`
	Node       string `bun:"node"`
	Status     int16  `bun:"status"`
	Reason     string `bun:"reason"`
	Attempt    int32  `bun:"attempt"`
	Run        int32  `bun:"run"`
	Lane       string `bun:"lane"`
	Pool       string `bun:"pool"`
	Key        string `bun:"business_key"`
	Params     []byte `bun:"params"`
	Items      []byte `bun:"items"`
	FireAt     int64  `bun:"fire_at"`
	DueAt      int64  `bun:"due_at"`
	CreatedAt  int64  `bun:"created_at"`
	StartedAt  int64  `bun:"started_at"`
	FinishedAt int64  `bun:"finished_at"`
	Result     []byte `bun:"result"`
	Error      string `bun:"error"`
	Worker     string `bun:"worker"`
	LogFrom    int64  `bun:"log_from"`
	LogTo      int64  `bun:"log_to"`
	Late       []byte `bun:"late"`
	FeedKey    *int64 `bun:"feed_key"`
	ActiveKey  *int16 `bun:"active_key"`
	FireKey    []byte `bun:"fire_key"`
	KeyHash    *int64 `bun:"key_hash"`
}

// instanceFixed are the columns that no update changes.
var instanceFixed = []string{"app_id", "shard", "job_id", "job_version", "workflow_id", "node", "business_key", "params", "items", "fire_at", "created_at", "fire_key", "key_hash"}

const lateText = "UPDATE instances SET late = ? WHERE id = ? AND status >= 5"

// checkInstance refuses what a caller put in; what a run produced is cut in newInstanceRow.
func checkInstance(d *door, i *engine.Instance) {
	d.text("node", i.Node, engine.MaxNodeID)
	d.text("pool", i.Pool, engine.MaxName)
	d.text("lane", string(i.Lane), maxLane)
	d.text("key", i.Key, engine.MaxKey)
	d.bytes("params", i.Params, engine.MaxParams)
	d.bytes("items", i.Items, engine.MaxParams)
}

func newInstanceRow(i *engine.Instance) instanceRow {
	r := instanceRow{
		ID: i.ID, App: i.App, Shard: int16(i.Shard), Job: i.Job, JobVersion: i.JobVersion, Workflow: nonZero(i.Workflow), Node: i.Node,
		Status: int16(i.Status), Reason: engine.CutText(string(i.Reason), engine.MaxText), Attempt: i.Attempt, Run: i.Run,
		Lane: string(i.Lane), Pool: i.Pool, Key: i.Key, Params: i.Params, Items: i.Items,
		FireAt: i.FireAt, DueAt: i.DueAt, CreatedAt: i.CreatedAt, StartedAt: i.StartedAt, FinishedAt: i.FinishedAt,
		Result: cutValue(i.Result, engine.MaxResult), Error: engine.CutText(i.Error, engine.MaxError), Worker: engine.CutText(i.Worker, maxWorker),
		LogFrom: int64(i.LogFrom), LogTo: int64(i.LogTo), Late: cutValue(i.Late, engine.MaxResult),
	}
	switch i.Status {
	case engine.StatusWaiting:
		key := engine.FeedKey(engine.QueueOf(i.App, i.Lane, i.Pool), i.DueAt)
		r.FeedKey = &key
	case engine.StatusDispatched, engine.StatusRunning:
		shard := int16(i.Shard)
		r.ActiveKey = &shard
	default: // nothing looks for what is final
	}
	r.FireKey, r.KeyHash = fireKey(i.FireAt, i.Job), keyHash(i.Job, i.Key)
	return r
}

// fireKey is what makes a fire of a job or workflow unique; nil for what was called.
func fireKey(at, of int64) []byte {
	if at == 0 {
		return nil
	}
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(make([]byte, 0, 16), uint64(at)), uint64(of))
}

// keyHash finds runs of a job or workflow by their business key; nil for those without.
func keyHash(of int64, key string) *int64 {
	if of == 0 || key == "" {
		return nil
	}
	h := engine.KeyHash(of, key)
	return &h
}

func (r *instanceRow) noun() engine.Instance {
	return engine.Instance{
		ID: r.ID, App: r.App, Shard: uint8(r.Shard), Job: r.Job, JobVersion: r.JobVersion, Workflow: value(r.Workflow), Node: r.Node,
		Status: engine.Status(r.Status), Reason: engine.Reason(r.Reason), Attempt: r.Attempt, Run: r.Run,
		Lane: workflow.Lane(r.Lane), Pool: r.Pool, Key: r.Key, Params: r.Params, Items: r.Items,
		FireAt: r.FireAt, DueAt: r.DueAt, CreatedAt: r.CreatedAt, StartedAt: r.StartedAt, FinishedAt: r.FinishedAt,
		Result: r.Result, Error: r.Error, Worker: r.Worker, LogFrom: uint64(r.LogFrom), LogTo: uint64(r.LogTo), Late: r.Late,
	}
}

type attemptRow struct {
	bun.BaseModel `bun:"table:attempts"`

	Instance   int64  `bun:"instance_id,pk"`
	Attempt    int32  `bun:"attempt,pk"`
	Status     int16  `bun:"status"`
	Error      string `bun:"error"`
	Worker     string `bun:"worker"`
	StartedAt  int64  `bun:"started_at"`
	FinishedAt int64  `bun:"finished_at"`
}

func newAttemptRow(a *engine.Attempt) attemptRow {
	return attemptRow{
		Instance: a.Instance, Attempt: a.Attempt, Status: int16(a.Status), Error: engine.CutText(a.Error, engine.MaxError),
		Worker: engine.CutText(a.Worker, maxWorker), StartedAt: a.StartedAt, FinishedAt: a.FinishedAt,
	}
}

func (r *attemptRow) noun() engine.Attempt {
	return engine.Attempt{
		Instance: r.Instance, Attempt: r.Attempt, Status: engine.Status(r.Status), Error: r.Error, Worker: r.Worker,
		StartedAt: r.StartedAt, FinishedAt: r.FinishedAt,
	}
}
