package storage

// The fourth version: users, their roles, sessions, tokens and one-time codes, the audit log
// and secrets.
//
//   - subject_key: a hash of issuer and subject, NULL for who has none;
//   - audit_head: one row with the number of the last record. Whoever adds one, or changes who
//     holds a role, locks it, so that the chain never forks and the last admin never goes.
var schemaV4 = []ddlTable{
	{
		name: "users", columns: `
	id {id} NOT NULL {auto} PRIMARY KEY,
	name varchar(128) NOT NULL,
	title varchar(255) NOT NULL,
	email varchar(255) NOT NULL,
	kind varchar(16) NOT NULL,
	issuer varchar(255) NOT NULL,
	subject varchar(255) NOT NULL,
	subject_key varchar(64),
	password varchar(512) NOT NULL,
	password_at bigint NOT NULL,
	must_change smallint NOT NULL,
	totp {blob},
	totp_step bigint NOT NULL,
	failed integer NOT NULL,
	failed_at bigint NOT NULL,
	login_at bigint NOT NULL,
	disabled smallint NOT NULL,
	generation bigint NOT NULL,
	version integer NOT NULL,
	created_at bigint NOT NULL,
	updated_at bigint NOT NULL,
	CONSTRAINT users_name_set CHECK (name <> ''),
	CONSTRAINT users_kind CHECK (kind IN ('person', 'service')),
	CONSTRAINT users_service CHECK (kind = 'person' OR (password = '' AND totp IS NULL AND issuer = '')),
	CONSTRAINT users_subject CHECK ((subject_key IS NOT NULL) = (issuer <> '')),
	CONSTRAINT users_must_change CHECK (must_change IN (0, 1)),
	CONSTRAINT users_failed CHECK (failed >= 0),
	CONSTRAINT users_disabled CHECK (disabled IN (0, 1)),
	CONSTRAINT users_version CHECK (version >= 1)`,
		keys: []ddlKey{{unique: true, columns: "name"}, {unique: true, columns: "subject_key", partial: true}},
	},

	{
		name: "role_bindings", byKey: true, columns: `
	user_id bigint NOT NULL,
	role varchar(32) NOT NULL,
	scope varchar(64) NOT NULL,
	bound_at bigint NOT NULL,
	PRIMARY KEY (user_id, role, scope),
	CONSTRAINT role_bindings_role CHECK (role <> '')`,
		keys: []ddlKey{{columns: "scope"}},
	},

	{
		name: "login_codes", columns: `
	id {id} NOT NULL PRIMARY KEY,
	purpose varchar(16) NOT NULL,
	user_id bigint NOT NULL,
	hash {blob} NOT NULL,
	created_at bigint NOT NULL,
	expires_at bigint NOT NULL,
	CONSTRAINT login_codes_purpose CHECK (purpose IN ('setup', 'login')),
	CONSTRAINT login_codes_user CHECK ((purpose = 'setup') = (user_id = 0)),
	CONSTRAINT login_codes_hash CHECK (length(hash) = 32)`,
		keys: []ddlKey{{columns: "expires_at"}},
	},

	{
		name: "sessions", columns: `
	id {id} NOT NULL PRIMARY KEY,
	user_id bigint NOT NULL,
	hash {blob} NOT NULL,
	generation bigint NOT NULL,
	from_address varchar(255) NOT NULL,
	agent varchar(255) NOT NULL,
	created_at bigint NOT NULL,
	seen_at bigint NOT NULL,
	expires_at bigint NOT NULL,
	CONSTRAINT sessions_user CHECK (user_id > 0),
	CONSTRAINT sessions_hash CHECK (length(hash) = 32)`,
		keys: []ddlKey{{columns: "user_id"}, {columns: "expires_at"}},
	},

	{
		name: "tokens", columns: `
	id {id} NOT NULL PRIMARY KEY,
	user_id bigint NOT NULL,
	name varchar(255) NOT NULL,
	hash {blob} NOT NULL,
	permissions {mediumtext} NOT NULL,
	apps {mediumtext} NOT NULL,
	created_at bigint NOT NULL,
	created_by bigint NOT NULL,
	expires_at bigint NOT NULL,
	used_at bigint NOT NULL,
	revoked_at bigint NOT NULL,
	CONSTRAINT tokens_user CHECK (user_id > 0),
	CONSTRAINT tokens_hash CHECK (length(hash) = 32),
	CONSTRAINT tokens_expires CHECK (expires_at > 0)`,
		keys: []ddlKey{{columns: "user_id"}},
	},

	{
		name: "audit", columns: `
	seq {id} NOT NULL PRIMARY KEY,
	happened_at bigint NOT NULL,
	actor_kind varchar(16) NOT NULL,
	actor_id bigint NOT NULL,
	credential_id bigint NOT NULL,
	actor_name varchar(128) NOT NULL,
	action varchar(63) NOT NULL,
	app_id bigint NOT NULL,
	target varchar(255) NOT NULL,
	outcome varchar(16) NOT NULL,
	from_address varchar(255) NOT NULL,
	request varchar(255) NOT NULL,
	before_change {blob},
	after_change {blob},
	prev_hash {blob} NOT NULL,
	hash {blob} NOT NULL,
	CONSTRAINT audit_seq CHECK (seq >= 1),
	CONSTRAINT audit_hashes CHECK (length(prev_hash) = 32 AND length(hash) = 32)`,
		keys: []ddlKey{{columns: "actor_id"}, {columns: "app_id"}, {columns: "target"}, {columns: "happened_at"}},
	},

	{name: "audit_head", byKey: true, columns: `
	one smallint NOT NULL PRIMARY KEY,
	seq bigint NOT NULL,
	CONSTRAINT audit_head_one CHECK (one = 1),
	CONSTRAINT audit_head_seq CHECK (seq >= 0)`},

	{
		name: "secrets", columns: `
	app_id bigint NOT NULL,
	name varchar(63) NOT NULL,
	version integer NOT NULL,
	key_id varchar(63) NOT NULL,
	sealed {blob} NOT NULL,
	updated_by bigint NOT NULL,
	created_at bigint NOT NULL,
	updated_at bigint NOT NULL,
	PRIMARY KEY (app_id, name),
	CONSTRAINT secrets_app CHECK (app_id > 0),
	CONSTRAINT secrets_version CHECK (version >= 1),
	CONSTRAINT secrets_sealed CHECK (key_id <> '' AND length(sealed) > 0)`,
		keys: []ddlKey{{columns: "key_id"}},
	},
}

func migrateToV4(d *dialect) []string {
	var out []string
	for _, t := range schemaV4 {
		out = append(out, t.statements(d)...)
	}
	return append(out, "INSERT INTO audit_head (one, seq) SELECT 1, 0 FROM (SELECT 1) just WHERE NOT EXISTS (SELECT 1 FROM audit_head)")
}
