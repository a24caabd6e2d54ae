package storage

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/fanjet/fanjet/engine"
)

// The third version: schedules, the ledger, permits and calendars. Further keys that are NULL
// where nothing looks for them:
//
//   - wake_key: when to look at a schedule, NULL for never;
//   - key_hash: engine.KeyHash of what has a business key, NULL for the others.
var schemaV3 = []ddlTable{
	{
		name: "schedules", byKey: true, columns: `
	kind smallint NOT NULL,
	id bigint NOT NULL,
	app_id bigint NOT NULL,
	shard smallint NOT NULL,
	version integer NOT NULL,
	enabled smallint NOT NULL,
	spec {blob} NOT NULL,
	delay_ms bigint NOT NULL,
	max_running integer NOT NULL,
	anchor_at bigint NOT NULL,
	handled_at bigint NOT NULL,
	next_at bigint NOT NULL,
	wake_key bigint,
	paused_at bigint NOT NULL,
	resumed_at bigint NOT NULL,
	skip_from bigint NOT NULL,
	skip_reason varchar(16) NOT NULL,
	open_runs integer NOT NULL,
	runs bigint NOT NULL,
	succeeded bigint NOT NULL,
	failed bigint NOT NULL,
	last_id bigint NOT NULL,
	last_status smallint NOT NULL,
	last_start bigint NOT NULL,
	last_end bigint NOT NULL,
	PRIMARY KEY (kind, id),
	CONSTRAINT schedules_kind CHECK (kind IN (1, 2)),
	CONSTRAINT schedules_id CHECK (id > 0),
	CONSTRAINT schedules_shard CHECK (shard BETWEEN 0 AND 63),
	CONSTRAINT schedules_version CHECK (version >= 1),
	CONSTRAINT schedules_enabled CHECK (enabled IN (0, 1)),
	CONSTRAINT schedules_limits CHECK (max_running >= 0 AND delay_ms >= 0),
	CONSTRAINT schedules_wake CHECK (wake_key IS NULL OR (wake_key > 0 AND enabled = 1)),
	CONSTRAINT schedules_pause CHECK (resumed_at = 0 OR paused_at <> 0),
	CONSTRAINT schedules_paused CHECK (paused_at = 0 OR resumed_at <> 0 OR wake_key IS NULL),
	CONSTRAINT schedules_skip CHECK ((skip_from <> 0) = (skip_reason <> '')),
	CONSTRAINT schedules_open CHECK (open_runs >= 0),
	CONSTRAINT schedules_counts CHECK (succeeded >= 0 AND failed >= 0 AND succeeded + failed <= runs),
	CONSTRAINT schedules_last CHECK (last_status = 0 OR last_status BETWEEN 5 AND 10)`,
		keys: []ddlKey{{columns: "wake_key", partial: true}, {columns: "app_id"}},
	},

	{
		name: "ledger", byKey: true, columns: `
	kind smallint NOT NULL,
	id bigint NOT NULL,
	from_at bigint NOT NULL,
	to_at bigint NOT NULL,
	skips bigint NOT NULL,
	reason varchar(16) NOT NULL,
	decided_at bigint NOT NULL,
	PRIMARY KEY (kind, id, from_at),
	CONSTRAINT ledger_kind CHECK (kind IN (1, 2)),
	CONSTRAINT ledger_range CHECK (from_at > 0 AND to_at >= from_at),
	CONSTRAINT ledger_skips CHECK (skips >= 1),
	CONSTRAINT ledger_reason CHECK (reason <> '')`,
		keys: []ddlKey{{columns: "to_at"}},
	},

	{name: "permits", byKey: true, columns: `
	job_id bigint NOT NULL,
	instance_id bigint NOT NULL,
	max_running integer NOT NULL,
	PRIMARY KEY (job_id, instance_id),
	CONSTRAINT permits_max CHECK (max_running >= 1)`},

	{
		name: "calendars", columns: `
	id {id} NOT NULL {auto} PRIMARY KEY,
	app_id bigint NOT NULL,
	name varchar(63) NOT NULL,
	version integer NOT NULL,
	body {blob} NOT NULL,
	updated_at bigint NOT NULL,
	CONSTRAINT calendars_version CHECK (version >= 1),
	CONSTRAINT calendars_name_set CHECK (name <> '')`,
		keys: []ddlKey{{unique: true, columns: "app_id, name"}},
	},
}

var columnsV3 = []ddlColumn{
	{table: "jobs", name: "schedule", kind: "{blob}"},
	{table: "job_versions", name: "schedule", kind: "{blob}"},
	{table: "workflows", name: "schedule", kind: "{blob}"},
	{table: "workflows", name: "max_running", kind: "integer NOT NULL DEFAULT 0"},
	{table: "workflow_versions", name: "schedule", kind: "{blob}"},
	{table: "workflow_versions", name: "max_running", kind: "integer NOT NULL DEFAULT 0"},
	{table: "instances", name: "key_hash", kind: "bigint", key: true},
	{table: "workflow_instances", name: "key_hash", kind: "bigint", key: true},
	{table: "workflow_instances", name: "fire_at", kind: "bigint NOT NULL DEFAULT 0"},
	{table: "workflow_instances", name: "fire_key", kind: "{key16}", key: true, unique: true, check: "(fire_key IS NOT NULL) = (fire_at <> 0)"},
}

func migrateToV3(d *dialect) []string {
	var out []string
	for _, t := range schemaV3 {
		out = append(out, t.statements(d)...)
	}
	for _, c := range columnsV3 {
		out = append(out, c.statements(d)...)
	}
	return out
}

// fillV3 makes the schedules of jobs and workflows that were saved before there were any, and
// the hashes of the keys of what is not final. It can be run again from any point.
func fillV3(ctx context.Context, tx bun.Tx) error {
	const without = " r WHERE NOT EXISTS (SELECT 1 FROM schedules s WHERE s.kind = ? AND s.id = r.id) ORDER BY id LIMIT ?"
	for {
		var jobs []jobRow
		if err := tx.NewRaw("SELECT id, app_id, version, enabled, spec, schedule, updated_at FROM jobs"+without, engine.KindJob, page).Scan(ctx, &jobs); err != nil {
			return err
		}
		var workflows []workflowRow
		err := tx.NewRaw("SELECT id, app_id, version, enabled, schedule, max_running, updated_at FROM workflows"+without, engine.KindWorkflow, page).Scan(ctx, &workflows)
		if err != nil {
			return err
		}
		if len(jobs)+len(workflows) == 0 {
			break
		}
		var fresh []scheduleRow
		for i := range jobs {
			j, err := jobs[i].noun()
			if err != nil {
				return err
			}
			fresh = append(fresh, *freshSchedule(scheduleOfJob(j), jobs[i].Schedule))
		}
		for i := range workflows {
			w, err := workflows[i].noun()
			if err != nil {
				return err
			}
			fresh = append(fresh, *freshSchedule(scheduleOfWorkflow(w), workflows[i].Schedule))
		}
		if _, err := tx.NewInsert().Model(&fresh).Returning("NULL").Exec(ctx); err != nil {
			return err
		}
	}
	for after := int64(0); ; {
		var rows []instanceRow
		err := tx.NewRaw("SELECT id, job_id, business_key FROM instances "+
			"WHERE status < 5 AND business_key <> '' AND job_id <> 0 AND key_hash IS NULL AND id > ? ORDER BY id LIMIT ?", after, page).Scan(ctx, &rows)
		if err != nil || len(rows) == 0 {
			return err
		}
		for i := range rows {
			after = rows[i].ID
			if _, err := tx.ExecContext(ctx, "UPDATE instances SET key_hash = ? WHERE id = ?", engine.KeyHash(rows[i].Job, rows[i].Key), after); err != nil {
				return fmt.Errorf("key of instance %d: %w", after, err)
			}
		}
	}
}
