package storage

import (
	"fmt"
	"strings"
)

// The second version: nested workflow instances, waits and signals, and lists that a root
// task emits.
var schemaV2 = []ddlTable{
	{
		name: "signals", columns: `
	id {id} NOT NULL PRIMARY KEY,
	workflow_id bigint NOT NULL,
	name varchar(128) NOT NULL,
	approval smallint NOT NULL,
	payload {blob},
	came_at bigint NOT NULL,
	CONSTRAINT signals_name_set CHECK (name <> ''),
	CONSTRAINT signals_approval CHECK (approval IN (0, 1))`,
		keys: []ddlKey{{columns: "workflow_id"}},
	},
}

var columnsV2 = []ddlColumn{
	{table: "instances", name: "items", kind: "{blob}"},
	{table: "nodes", name: "child_id", kind: "bigint NOT NULL DEFAULT 0"},
	{table: "nodes", name: "due_at", kind: "bigint NOT NULL DEFAULT 0"},
	{table: "workflow_instances", name: "parent_id", kind: "bigint NOT NULL DEFAULT 0"},
	{table: "workflow_instances", name: "parent_node", kind: "varchar(128) NOT NULL DEFAULT ''"},
	{table: "workflow_instances", name: "depth", kind: "integer NOT NULL DEFAULT 0"},
}

// ddlColumn is a column that a migration adds.
type ddlColumn struct {
	table, name, kind string
	check             string // what holds in each row
	key, unique       bool   // an index on it, for the rows where it is not NULL
}

// statements add the column. MySQL commits each by itself and knows no IF NOT EXISTS here,
// so it is asked first, and one statement does all; on SQLite a migration is done as a whole.
func (c ddlColumn) statements(d *dialect) []string {
	add := d.ddl.Replace(fmt.Sprintf("ALTER TABLE %s ADD COLUMN %s %s", c.table, c.name, c.kind))
	unique := ""
	if c.unique {
		unique = "UNIQUE "
	}
	if d.singleRows {
		if c.check != "" {
			add += " CHECK (" + c.check + ")"
		}
		if !c.key {
			return []string{add}
		}
		return []string{add, fmt.Sprintf("CREATE %sINDEX IF NOT EXISTS %s_%s ON %s (%s) WHERE %s IS NOT NULL", unique, c.table, c.name, c.table, c.name, c.name)}
	}
	if c.check != "" {
		add += fmt.Sprintf(", ADD CONSTRAINT %s_%s_holds CHECK (%s)", c.table, c.name, c.check)
	}
	if c.key {
		add += fmt.Sprintf(", ADD %sKEY %s_%s (%s)", unique, c.table, c.name, c.name)
	}
	return []string{
		fmt.Sprintf("SET @add_column = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE() "+
			"AND table_name = '%s' AND column_name = '%s') = 0, '%s', 'DO 0')", c.table, c.name, quoted(add)),
		"PREPARE add_column FROM @add_column",
		"EXECUTE add_column",
		"DEALLOCATE PREPARE add_column",
	}
}

// quoted is a statement inside a text of SQL.
func quoted(s string) string { return strings.ReplaceAll(s, "'", "''") }

func migrateToV2(d *dialect) []string {
	var out []string
	for _, t := range schemaV2 {
		out = append(out, t.statements(d)...)
	}
	for _, c := range columnsV2 {
		out = append(out, c.statements(d)...)
	}
	return out
}
