package storage

import (
	"github.com/uptrace/bun"

	"github.com/fanjet/fanjet/engine"
)

type taskRow struct {
	bun.BaseModel `bun:"table:tasks"`

	Instance    int64  `bun:"instance_id,pk"`
	Run         int32  `bun:"run,pk"`
	Kind        int16  `bun:"kind,pk"`
	Number      int64  `bun:"number,pk"`
	Status      int16  `bun:"status"`
	Attempt     int32  `bun:"attempt"`
	Lost        int32  `bun:"lost"`
	Worker      string `bun:"worker"`
	Incarnation int64  `bun:"incarnation"`
	NextTryAt   int64  `bun:"next_try_at"`
	StageSeq    int64  `bun:"stage_seq"`
	StageOff    int32  `bun:"stage_off"`
	Error       string `bun:"error"`
	Result      []byte `bun:"result"`
	Checkpoint  []byte `bun:"checkpoint"`
	StartedAt   int64  `bun:"started_at"`
	FinishedAt  int64  `bun:"finished_at"`
}

func checkTask(d *door, t *engine.Task) {
	d.bytes("checkpoint", t.Checkpoint, engine.MaxCheckpoint)
}

func newTaskKey(k engine.TaskKey) taskRow {
	return taskRow{Instance: k.Instance, Run: k.Run, Kind: int16(k.Kind), Number: k.Number}
}

func newTaskRow(t *engine.Task) taskRow {
	r := newTaskKey(t.TaskKey)
	r.Status, r.Attempt, r.Lost = int16(t.Status), t.Attempt, t.Lost
	r.Worker, r.Incarnation, r.NextTryAt = engine.CutText(t.Worker, maxWorker), int64(t.Incarnation), t.NextTryAt
	r.StageSeq, r.StageOff = int64(t.StageSeq), t.StageOff
	r.Error, r.Result, r.Checkpoint = engine.CutText(t.Error, engine.MaxError), cutValue(t.Result, engine.MaxResult), t.Checkpoint
	r.StartedAt, r.FinishedAt = t.StartedAt, t.FinishedAt
	return r
}

func (r *taskRow) noun() engine.Task {
	return engine.Task{
		TaskKey: engine.TaskKey{Instance: r.Instance, Run: r.Run, Kind: engine.TaskKind(r.Kind), Number: r.Number},
		Status:  engine.TaskStatus(r.Status), Attempt: r.Attempt, Lost: r.Lost, Worker: r.Worker, Incarnation: uint64(r.Incarnation),
		NextTryAt: r.NextTryAt, StageSeq: uint64(r.StageSeq), StageOff: r.StageOff, Error: r.Error, Result: r.Result,
		Checkpoint: r.Checkpoint, StartedAt: r.StartedAt, FinishedAt: r.FinishedAt,
	}
}

type mapRunRow struct {
	bun.BaseModel `bun:"table:map_runs"`

	Instance  int64  `bun:"instance_id,pk"`
	Run       int32  `bun:"run,pk"`
	Closed    int16  `bun:"closed"`
	Total     int64  `bun:"total"`
	Succeeded int64  `bun:"succeeded"`
	Failed    int64  `bun:"failed"`
	State     []byte `bun:"state"`
	UpdatedAt int64  `bun:"updated_at"`
}

func newMapRunRow(m *engine.MapRun) mapRunRow {
	return mapRunRow{
		Instance: m.Instance, Run: m.Run, Closed: bit(m.Closed), Total: m.Total, Succeeded: m.Succeeded, Failed: m.Failed,
		State: m.State, UpdatedAt: m.UpdatedAt,
	}
}

func (r *mapRunRow) noun() engine.MapRun {
	return engine.MapRun{
		Instance: r.Instance, Run: r.Run, Closed: r.Closed == 1, Total: r.Total, Succeeded: r.Succeeded, Failed: r.Failed,
		State: r.State, UpdatedAt: r.UpdatedAt,
	}
}

type deadLetterRow struct {
	bun.BaseModel `bun:"table:dead_letters"`

	ID      int64  `bun:"id,pk"`
	Shard   int16  `bun:"shard"`
	Subject string `bun:"subject"`
	Seq     int64  `bun:"seq"`
	Payload []byte `bun:"payload"`
	Reason  string `bun:"reason"`
	DiedAt  int64  `bun:"died_at"`
}

func newDeadLetterRow(l *engine.DeadLetter) deadLetterRow {
	return deadLetterRow{
		ID: l.ID, Shard: int16(l.Shard), Subject: engine.CutText(l.Subject, engine.MaxKey), Seq: int64(l.Seq),
		Payload: l.Payload[:min(len(l.Payload), maxDead)], Reason: engine.CutText(l.Reason, engine.MaxText), DiedAt: l.At,
	}
}

func (r *deadLetterRow) noun() engine.DeadLetter {
	return engine.DeadLetter{ID: r.ID, Shard: uint8(r.Shard), Subject: r.Subject, Seq: uint64(r.Seq), Payload: r.Payload, Reason: r.Reason, At: r.DiedAt}
}
