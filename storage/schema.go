package storage

// The first version of the schema. Bounds in bytes are those of engine/bounds.go. Where an
// index would only serve rows in passing, it stands on a key that is NULL for all others:
//
//   - feed_key: engine.FeedKey while an instance waits;
//   - active_key: the shard while an instance is dispatched or runs, or a workflow instance
//     is not final;
//   - wait_key: when a waiting workflow instance is due;
//   - fire_key: (fire_at, job_id), eight bytes each, of what a schedule fired;
//
// so that the final write of an instance dirties the page of its row and little else.
// {index} lists a table's keys for MySQL, where they are part of the table so that no crash
// can leave half of it; SQLite makes them partial in their own statements.
type ddlTable struct {
	name    string
	columns string
	keys    []ddlKey
	byKey   bool // SQLite: WITHOUT ROWID
}

type ddlKey struct {
	unique  bool
	columns string // the first one names the index
	partial bool   // SQLite: only where it is not NULL
}

var schemaV1 = []ddlTable{
	{
		name: "apps", columns: `
	id {id} NOT NULL {auto} PRIMARY KEY,
	name varchar(63) NOT NULL,
	stream_set varchar(63) NOT NULL,
	created_at bigint NOT NULL,
	CONSTRAINT apps_name_set CHECK (name <> '')`,
		keys: []ddlKey{{unique: true, columns: "name"}},
	},

	{name: "workers", byKey: true, columns: `
	app_id bigint NOT NULL,
	name varchar(63) NOT NULL,
	incarnation bigint NOT NULL,
	version varchar(255) NOT NULL,
	host varchar(255) NOT NULL,
	pools {mediumtext} NOT NULL,
	labels {mediumtext} NOT NULL,
	processors {mediumtext} NOT NULL,
	slots integer NOT NULL,
	maintenance smallint NOT NULL,
	first_seen bigint NOT NULL,
	last_seen bigint NOT NULL,
	PRIMARY KEY (app_id, name),
	CONSTRAINT workers_slots CHECK (slots >= 0),
	CONSTRAINT workers_maintenance CHECK (maintenance IN (0, 1))`},

	{
		name: "containers", columns: `
	id {id} NOT NULL {auto} PRIMARY KEY,
	app_id bigint NOT NULL,
	name varchar(63) NOT NULL,
	version varchar(63) NOT NULL,
	digest varchar(64) NOT NULL,
	enabled smallint NOT NULL,
	created_at bigint NOT NULL,
	CONSTRAINT containers_enabled CHECK (enabled IN (0, 1))`,
		keys: []ddlKey{{unique: true, columns: "app_id, name, version"}},
	},

	{
		name: "jobs", columns: `
	id {id} NOT NULL {auto} PRIMARY KEY,
	app_id bigint NOT NULL,
	name varchar(63) NOT NULL,
	title varchar(255) NOT NULL,
	version integer NOT NULL,
	enabled smallint NOT NULL,
	spec {blob} NOT NULL,
	created_at bigint NOT NULL,
	updated_at bigint NOT NULL,
	CONSTRAINT jobs_version CHECK (version >= 1),
	CONSTRAINT jobs_enabled CHECK (enabled IN (0, 1)),
	CONSTRAINT jobs_name_set CHECK (name <> '')`,
		keys: []ddlKey{{unique: true, columns: "app_id, name"}},
	},

	{name: "job_versions", byKey: true, columns: `
	job_id bigint NOT NULL,
	version integer NOT NULL,
	title varchar(255) NOT NULL,
	enabled smallint NOT NULL,
	spec {blob} NOT NULL,
	updated_at bigint NOT NULL,
	PRIMARY KEY (job_id, version),
	CONSTRAINT job_versions_version CHECK (version >= 1)`},

	{
		name: "workflows", columns: `
	id {id} NOT NULL {auto} PRIMARY KEY,
	app_id bigint NOT NULL,
	name varchar(63) NOT NULL,
	title varchar(255) NOT NULL,
	version integer NOT NULL,
	enabled smallint NOT NULL,
	definition {blob} NOT NULL,
	created_at bigint NOT NULL,
	updated_at bigint NOT NULL,
	CONSTRAINT workflows_version CHECK (version >= 1),
	CONSTRAINT workflows_enabled CHECK (enabled IN (0, 1)),
	CONSTRAINT workflows_name_set CHECK (name <> '')`,
		keys: []ddlKey{{unique: true, columns: "app_id, name"}},
	},

	{name: "workflow_versions", byKey: true, columns: `
	workflow_id bigint NOT NULL,
	version integer NOT NULL,
	title varchar(255) NOT NULL,
	enabled smallint NOT NULL,
	definition {blob} NOT NULL,
	updated_at bigint NOT NULL,
	PRIMARY KEY (workflow_id, version),
	CONSTRAINT workflow_versions_version CHECK (version >= 1)`},

	{
		name: "instances", columns: `
	id {id} NOT NULL PRIMARY KEY,
	app_id bigint NOT NULL,
	shard smallint NOT NULL,
	job_id bigint NOT NULL,
	job_version integer NOT NULL,
	workflow_id bigint,
	node varchar(128) NOT NULL,
	status smallint NOT NULL,
	reason {text} NOT NULL,
	attempt integer NOT NULL,
	run integer NOT NULL,
	lane varchar(16) NOT NULL,
	pool varchar(63) NOT NULL,
	business_key varchar(255) NOT NULL,
	params {blob},
	fire_at bigint NOT NULL,
	due_at bigint NOT NULL,
	created_at bigint NOT NULL,
	started_at bigint NOT NULL,
	finished_at bigint NOT NULL,
	result {blob},
	error {text} NOT NULL,
	worker varchar(255) NOT NULL,
	log_from bigint NOT NULL,
	log_to bigint NOT NULL,
	late {blob},
	feed_key bigint,
	active_key smallint,
	fire_key {key16},
	CONSTRAINT instances_id CHECK (id > 0),
	CONSTRAINT instances_app CHECK (app_id > 0),
	CONSTRAINT instances_shard CHECK (shard BETWEEN 0 AND 63),
	CONSTRAINT instances_status CHECK (status BETWEEN 1 AND 10 AND status <> 4),
	CONSTRAINT instances_attempt CHECK (attempt >= 1),
	CONSTRAINT instances_run CHECK (run >= 0),
	CONSTRAINT instances_started CHECK (status <> 3 OR started_at > 0),
	CONSTRAINT instances_finished CHECK ((finished_at <> 0) = (status >= 5)),
	CONSTRAINT instances_feed CHECK ((feed_key IS NOT NULL) = (status = 1)),
	CONSTRAINT instances_active CHECK ((active_key IS NOT NULL) = (status IN (2, 3))),
	CONSTRAINT instances_fire CHECK ((fire_key IS NOT NULL) = (fire_at <> 0)),
	CONSTRAINT instances_late CHECK (late IS NULL OR status >= 5)`,
		keys: []ddlKey{
			{columns: "job_id"},
			{columns: "workflow_id", partial: true},
			{columns: "feed_key", partial: true},
			{columns: "active_key", partial: true},
			{columns: "fire_key", partial: true, unique: true},
		},
	},

	{name: "attempts", byKey: true, columns: `
	instance_id bigint NOT NULL,
	attempt integer NOT NULL,
	status smallint NOT NULL,
	error {text} NOT NULL,
	worker varchar(255) NOT NULL,
	started_at bigint NOT NULL,
	finished_at bigint NOT NULL,
	PRIMARY KEY (instance_id, attempt),
	CONSTRAINT attempts_attempt CHECK (attempt >= 1),
	CONSTRAINT attempts_status CHECK (status BETWEEN 1 AND 10)`},

	{name: "tasks", byKey: true, columns: `
	instance_id bigint NOT NULL,
	run integer NOT NULL,
	kind smallint NOT NULL,
	number bigint NOT NULL,
	status smallint NOT NULL,
	attempt integer NOT NULL,
	lost integer NOT NULL,
	worker varchar(255) NOT NULL,
	incarnation bigint NOT NULL,
	next_try_at bigint NOT NULL,
	stage_seq bigint NOT NULL,
	stage_off integer NOT NULL,
	error {text} NOT NULL,
	result {blob},
	checkpoint {blob},
	started_at bigint NOT NULL,
	finished_at bigint NOT NULL,
	PRIMARY KEY (instance_id, run, kind, number),
	CONSTRAINT tasks_kind CHECK (kind BETWEEN 1 AND 6),
	CONSTRAINT tasks_status CHECK (status BETWEEN 1 AND 7),
	CONSTRAINT tasks_attempt CHECK (attempt >= 1),
	CONSTRAINT tasks_lost CHECK (lost >= 0),
	CONSTRAINT tasks_number CHECK (number >= 0),
	CONSTRAINT tasks_finished CHECK ((finished_at <> 0) = (status >= 4))`},

	{name: "map_runs", byKey: true, columns: `
	instance_id bigint NOT NULL,
	run integer NOT NULL,
	closed smallint NOT NULL,
	total bigint NOT NULL,
	succeeded bigint NOT NULL,
	failed bigint NOT NULL,
	state {blob},
	updated_at bigint NOT NULL,
	PRIMARY KEY (instance_id, run),
	CONSTRAINT map_runs_run CHECK (run >= 1),
	CONSTRAINT map_runs_closed CHECK (closed IN (0, 1)),
	CONSTRAINT map_runs_counts CHECK (succeeded >= 0 AND failed >= 0 AND succeeded + failed <= total)`},

	{
		name: "workflow_instances", columns: `
	id {id} NOT NULL PRIMARY KEY,
	app_id bigint NOT NULL,
	shard smallint NOT NULL,
	workflow_id bigint NOT NULL,
	version integer NOT NULL,
	status smallint NOT NULL,
	reason {text} NOT NULL,
	attempt integer NOT NULL,
	business_key varchar(255) NOT NULL,
	params {blob},
	context {blob},
	result {blob},
	error {text} NOT NULL,
	due_at bigint NOT NULL,
	created_at bigint NOT NULL,
	started_at bigint NOT NULL,
	finished_at bigint NOT NULL,
	wait_key bigint,
	active_key smallint,
	CONSTRAINT workflow_instances_id CHECK (id > 0),
	CONSTRAINT workflow_instances_shard CHECK (shard BETWEEN 0 AND 63),
	CONSTRAINT workflow_instances_status CHECK (status IN (1, 3, 4, 5, 6, 7, 8, 9, 10)),
	CONSTRAINT workflow_instances_attempt CHECK (attempt >= 1),
	CONSTRAINT workflow_instances_started CHECK (status NOT IN (3, 4) OR started_at > 0),
	CONSTRAINT workflow_instances_finished CHECK ((finished_at <> 0) = (status >= 5)),
	CONSTRAINT workflow_instances_wait CHECK ((wait_key IS NOT NULL) = (status = 1)),
	CONSTRAINT workflow_instances_active CHECK ((active_key IS NOT NULL) = (status < 5))`,
		keys: []ddlKey{{columns: "workflow_id"}, {columns: "wait_key", partial: true}, {columns: "active_key", partial: true}},
	},

	{name: "nodes", byKey: true, columns: `
	workflow_id bigint NOT NULL,
	node varchar(128) NOT NULL,
	attempt integer NOT NULL,
	node_index integer NOT NULL,
	status smallint NOT NULL,
	reason {text} NOT NULL,
	instance_id bigint NOT NULL,
	choice {blob},
	result {blob},
	error {text} NOT NULL,
	started_at bigint NOT NULL,
	finished_at bigint NOT NULL,
	PRIMARY KEY (workflow_id, node, attempt),
	CONSTRAINT nodes_status CHECK (status BETWEEN 1 AND 10),
	CONSTRAINT nodes_attempt CHECK (attempt >= 1),
	CONSTRAINT nodes_finished CHECK ((finished_at <> 0) = (status >= 5))`},

	{name: "servers", columns: `
	number {id} NOT NULL PRIMARY KEY,
	name varchar(255) NOT NULL,
	token bigint NOT NULL,
	lease_until bigint NOT NULL,
	started_at bigint NOT NULL,
	last_id bigint NOT NULL,
	CONSTRAINT servers_number CHECK (number BETWEEN 1 AND 1023)`},

	{name: "shards", columns: `
	shard {id} NOT NULL PRIMARY KEY,
	owner smallint NOT NULL,
	epoch bigint NOT NULL,
	report_cursor bigint NOT NULL,
	commit_no bigint NOT NULL,
	CONSTRAINT shards_shard CHECK (shard BETWEEN 0 AND 63),
	CONSTRAINT shards_owner CHECK (owner BETWEEN 0 AND 1023),
	CONSTRAINT shards_epoch CHECK (epoch >= 0)`},

	{
		name: "commands", columns: `
	id {id} NOT NULL PRIMARY KEY,
	shard smallint NOT NULL,
	kind varchar(63) NOT NULL,
	target_id bigint NOT NULL,
	request varchar(255),
	payload {blob},
	created_at bigint NOT NULL,
	CONSTRAINT commands_shard CHECK (shard BETWEEN 0 AND 63),
	CONSTRAINT commands_kind CHECK (kind <> '')`,
		keys: []ddlKey{{unique: true, columns: "request", partial: true}},
	},

	{name: "dead_letters", columns: `
	id {id} NOT NULL PRIMARY KEY,
	shard smallint NOT NULL,
	subject varchar(255) NOT NULL,
	seq bigint NOT NULL,
	payload {blob},
	reason {text} NOT NULL,
	died_at bigint NOT NULL,
	CONSTRAINT dead_letters_shard CHECK (shard BETWEEN 0 AND 63)`},
}
