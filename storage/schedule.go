package storage

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/uptrace/bun"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

type scheduleRow struct {
	bun.BaseModel `bun:"table:schedules"`

	Kind       int16  `bun:"kind,pk"`
	ID         int64  `bun:"id,pk"`
	App        int64  `bun:"app_id"`
	Shard      int16  `bun:"shard"`
	Version    int32  `bun:"version"`
	Enabled    int16  `bun:"enabled"`
	Spec       []byte `bun:"spec"`
	Delay      int64  `bun:"delay_ms"` // of fixed_delay
	MaxRunning int32  `bun:"max_running"`
	AnchorAt   int64  `bun:"anchor_at"`
	HandledAt  int64  `bun:"handled_at"`
	NextAt     int64  `bun:"next_at"`
	WakeKey    *int64 `bun:"wake_key"`
	PausedAt   int64  `bun:"paused_at"`
	ResumedAt  int64  `bun:"resumed_at"`
	SkipFrom   int64  `bun:"skip_from"`
	SkipReason string `bun:"skip_reason"`
	Open       int32  `bun:"open_runs"`
	Runs       int64  `bun:"runs"`
	Succeeded  int64  `bun:"succeeded"`
	Failed     int64  `bun:"failed"`
	LastID     int64  `bun:"last_id"`
	LastStatus int16  `bun:"last_status"`
	LastStart  int64  `bun:"last_start"`
	LastEnd    int64  `bun:"last_end"`
}

// scheduleFixed are the columns that only a save changes.
var scheduleFixed = []string{"app_id", "shard", "version", "enabled", "spec", "delay_ms", "max_running", "anchor_at"}

// scheduleKey names a schedule.
type scheduleKey struct {
	kind engine.DefKind
	id   int64
}

// newScheduleRow is the row of a schedule whose spec is encoded already.
func newScheduleRow(s *engine.Schedule, spec []byte) scheduleRow {
	r := scheduleRow{
		Kind: int16(s.Kind), ID: s.ID, App: s.App, Shard: int16(s.Shard), Version: s.Version, Enabled: bit(s.Enabled), Spec: spec,
		MaxRunning: s.MaxRunning, AnchorAt: s.AnchorAt, HandledAt: s.HandledAt, NextAt: s.NextAt, WakeKey: nonZero(s.WakeAt),
		PausedAt: s.PausedAt, ResumedAt: s.ResumedAt, SkipFrom: s.SkipFrom, SkipReason: string(s.SkipReason), Open: s.Open,
		Runs: s.Runs, Succeeded: s.Succeeded, Failed: s.Failed,
		LastID: s.LastID, LastStatus: int16(s.LastStatus), LastStart: s.LastStart, LastEnd: s.LastEnd,
	}
	if s.Spec.Type == workflow.ScheduleDelay {
		r.Delay = s.Spec.Every.Milliseconds()
	}
	return r
}

func (r *scheduleRow) noun() (*engine.Schedule, error) {
	s := &engine.Schedule{
		Kind: engine.DefKind(r.Kind), ID: r.ID, App: r.App, Shard: uint8(r.Shard), Version: r.Version, Enabled: r.Enabled == 1,
		MaxRunning: r.MaxRunning, AnchorAt: r.AnchorAt, HandledAt: r.HandledAt, NextAt: r.NextAt, WakeAt: value(r.WakeKey),
		PausedAt: r.PausedAt, ResumedAt: r.ResumedAt, SkipFrom: r.SkipFrom, SkipReason: engine.SkipReason(r.SkipReason), Open: r.Open,
		Runs: r.Runs, Succeeded: r.Succeeded, Failed: r.Failed,
		LastID: r.LastID, LastStatus: engine.Status(r.LastStatus), LastStart: r.LastStart, LastEnd: r.LastEnd,
	}
	if err := decodeSchedule(r.Spec, &s.Spec); err != nil {
		return nil, fmt.Errorf("stored schedule of %s %d: %w", s.Kind, s.ID, err)
	}
	return s, nil
}

func scheduleNouns(rows []scheduleRow) ([]engine.Schedule, error) {
	out := make([]engine.Schedule, len(rows))
	for i := range rows {
		s, err := rows[i].noun()
		if err != nil {
			return nil, err
		}
		out[i] = *s
	}
	return out, nil
}

func encodeSchedule(s *workflow.Schedule) ([]byte, error) {
	b, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("schedule: %w: %w", engine.ErrInvalid, err)
	}
	return b, nil
}

func decodeSchedule(b []byte, s *workflow.Schedule) error {
	if len(b) <= len("{}") {
		return nil
	}
	if err := json.Unmarshal(b, s); err != nil {
		return fmt.Errorf("%w: %w", engine.ErrInvalid, err)
	}
	return nil
}

// schedule refuses what no schedule's row holds.
func (d *door) schedule(spec []byte, maxRunning int64) {
	d.text("schedule", string(spec), maxSchedule)
	d.hold(maxRunning >= 0 && maxRunning <= math.MaxInt32, "max_running is %d", maxRunning)
}

func scheduleOfJob(j *engine.Job) *engine.Schedule {
	s := &engine.Schedule{Kind: engine.KindJob, ID: j.ID, App: j.App, Version: j.Version, Enabled: j.Enabled, Spec: j.Schedule, MaxRunning: int32(j.Spec.MaxRunning)}
	s.Begin(j.UpdatedAt)
	return s
}

func scheduleOfWorkflow(w *engine.WorkflowDef) *engine.Schedule {
	s := &engine.Schedule{Kind: engine.KindWorkflow, ID: w.ID, App: w.App, Version: w.Version, Enabled: w.Enabled, Spec: w.Schedule, MaxRunning: w.MaxRunning}
	s.Begin(w.UpdatedAt)
	return s
}

// freshSchedule is the row of a schedule that has just been made.
func freshSchedule(s *engine.Schedule, spec []byte) *scheduleRow {
	s.Shard = engine.ShardOf(s.ID)
	if len(spec) == 0 {
		spec = []byte("{}")
	}
	row := newScheduleRow(s, spec)
	return &row
}

// saveSchedule makes the schedule, or brings the stored one to what was saved. It begins
// anew only if what says when it fires has changed.
func (db *DB) saveSchedule(ctx context.Context, tx bun.Tx, fresh *scheduleRow) error {
	old, err := db.lockSchedule(ctx, tx, scheduleKey{engine.DefKind(fresh.Kind), fresh.ID})
	if errors.Is(err, sql.ErrNoRows) {
		_, err = tx.NewInsert().Model(fresh).Returning("NULL").Exec(ctx)
		return err
	}
	if err != nil {
		return err
	}
	row := *old
	row.Version, row.Enabled, row.Spec, row.MaxRunning, row.Delay = fresh.Version, fresh.Enabled, fresh.Spec, fresh.MaxRunning, fresh.Delay
	if !bytes.Equal(old.Spec, fresh.Spec) || old.Enabled != fresh.Enabled {
		s, err := row.noun()
		if err != nil {
			return err
		}
		s.Begin(fresh.AnchorAt)
		row = newScheduleRow(s, row.Spec)
	}
	_, err = tx.NewUpdate().Model(&row).WherePK().Exec(ctx)
	return err
}

func (db *DB) lockSchedule(ctx context.Context, tx bun.Tx, k scheduleKey) (*scheduleRow, error) {
	var row scheduleRow
	q := tx.NewSelect().Model(&row).Where("kind = ? AND id = ?", int16(k.kind), k.id)
	if db.forUpdate != "" {
		q = q.For("UPDATE")
	}
	return &row, q.Scan(ctx)
}

// DueSchedules reads the schedules of the shards that wake at or before until, in the order
// (WakeAt, Kind, ID), after the position.
func (db *DB) DueSchedules(ctx context.Context, shards []uint8, until int64, after engine.SchedulePos, limit int) ([]engine.Schedule, error) {
	if len(shards) == 0 || limit <= 0 || until < after.WakeAt {
		return nil, nil
	}
	// Two ranges of the index, as in Waiting.
	var rows, rest []scheduleRow
	if after.WakeAt > 0 {
		same := db.read.NewSelect().Model(&rows).Where("wake_key = ?", after.WakeAt).
			Where("kind > ? OR (kind = ? AND id > ?)", after.Kind, after.Kind, after.ID).Order("kind", "id").Limit(int64(limit))
		if err := inShards(same, shards).Scan(ctx); err != nil {
			return nil, db.wrap(err, "read due schedules")
		}
	}
	if left := limit - len(rows); left > 0 {
		later := db.read.NewSelect().Model(&rest).Where("wake_key > ?", after.WakeAt).Where("wake_key <= ?", until).
			Order("wake_key", "kind", "id").Limit(int64(left))
		if err := inShards(later, shards).Scan(ctx); err != nil {
			return nil, db.wrap(err, "read due schedules")
		}
	}
	return scheduleNouns(append(rows, rest...))
}

// Schedule is ErrNotFound if there is no such job or workflow.
func (db *DB) Schedule(ctx context.Context, kind engine.DefKind, id int64) (*engine.Schedule, error) {
	var row scheduleRow
	if err := db.read.NewSelect().Model(&row).Where("kind = ? AND id = ?", kind, id).Scan(ctx); err != nil {
		return nil, db.wrap(err, "schedule of %s %d", kind, id)
	}
	return row.noun()
}

// Schedules lists an app's schedules by (Kind, ID), after the position.
func (db *DB) Schedules(ctx context.Context, app int64, after engine.SchedulePos, limit int) ([]engine.Schedule, error) {
	var rows []scheduleRow
	err := db.read.NewSelect().Model(&rows).Where("app_id = ?", app).Where("kind > ? OR (kind = ? AND id > ?)", after.Kind, after.Kind, after.ID).
		Order("kind", "id").Limit(int64(limit)).Scan(ctx)
	if err != nil {
		return nil, db.wrap(err, "list schedules of app %d", app)
	}
	return scheduleNouns(rows)
}

// PauseSchedule stops it from firing from at on; one that is paused stays as it is. One that
// went on, but whose fires between are not decided yet, is paused since it was before.
func (db *DB) PauseSchedule(ctx context.Context, kind engine.DefKind, id, at int64) (*engine.Schedule, error) {
	return db.moveSchedule(ctx, kind, id, "pause", func(s *engine.Schedule) {
		if s.PausedAt == 0 {
			s.PausedAt = max(at, 1)
		}
		s.ResumedAt, s.WakeAt = 0, 0
	})
}

// ResumeSchedule has it woken at once: what was due meanwhile is decided by the misfire
// policy. One that is not paused stays as it is.
func (db *DB) ResumeSchedule(ctx context.Context, kind engine.DefKind, id, at int64) (*engine.Schedule, error) {
	return db.moveSchedule(ctx, kind, id, "resume", func(s *engine.Schedule) {
		switch {
		case !s.Paused():
		case s.Enabled && engine.FiresByItself(&s.Spec):
			s.ResumedAt, s.WakeAt = max(at, 1), max(at, 1)
		default: // nothing was due
			s.PausedAt = 0
		}
	})
}

func (db *DB) moveSchedule(ctx context.Context, kind engine.DefKind, id int64, what string, move func(*engine.Schedule)) (*engine.Schedule, error) {
	var s *engine.Schedule
	err := db.inTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		old, err := db.lockSchedule(ctx, tx, scheduleKey{kind, id})
		if err != nil {
			return err
		}
		if s, err = old.noun(); err != nil {
			return err
		}
		move(s)
		row := newScheduleRow(s, old.Spec)
		_, err = tx.NewUpdate().Model(&row).WherePK().Exec(ctx)
		return err
	})
	if err != nil {
		return nil, db.wrap(err, "%s %s %d", what, kind, id)
	}
	return s, nil
}
