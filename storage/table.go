package storage

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/schema"
)

// table writes rows of one kind, as the dialect does it best. Columns come from bun's view
// of the row struct.
type table[R any] struct {
	name       string
	fields     []*schema.Field // as inserted
	keys       []*schema.Field
	sets       []*schema.Field // as updated; what the guard reads last
	guard      string          // what must hold for a stored row to be changed
	given      []*schema.Field // whose new values the guard compares with
	insertText string
	updateText string
	deleteText string
}

// The guards of rows that are final. A workflow instance has a way back: a further attempt.
const (
	finalGuard    = "status < 5"
	workflowGuard = "(status < 5 OR attempt < {attempt})"
)

// newTable describes R; the fixed columns are written once, at the insert. In the guard
// {column} is the new value of a column.
func newTable[R any](db *DB, guard string, fixed ...string) *table[R] {
	typ := reflect.TypeFor[R]()
	s := db.write.Table(typ)
	t := &table[R]{name: s.Name, fields: s.Fields, keys: s.PKs, guard: guard}
	var status, attempt *schema.Field
	for _, f := range s.Fields {
		switch {
		case f.IsPK || slices.Contains(fixed, f.Name):
		case f.Name == "status":
			status = f
		case f.Name == "attempt" && guard == workflowGuard:
			attempt = f
		default:
			t.sets = append(t.sets, f)
		}
	}
	if status != nil {
		t.sets = append(t.sets, status)
	}
	if attempt != nil {
		// After the status: where that has moved, the attempt may; where not, it is the same.
		t.sets, t.given = append(t.sets, attempt), []*schema.Field{attempt}
	}
	where := list(t.keys, "%s = ?", " AND ")
	t.insertText = "INSERT INTO " + t.name + " (" + list(t.fields, "%s", ", ") + ") VALUES (" + strings.Repeat("?, ", len(t.fields)-1) + "?)"
	t.deleteText = "DELETE FROM " + t.name + " WHERE " + where
	if guard != "" {
		where += " AND " + strings.ReplaceAll(guard, "{attempt}", "?")
	}
	t.updateText = "UPDATE " + t.name + " SET " + list(t.sets, "%s = ?", ", ") + " WHERE " + where
	return t
}

func list(fields []*schema.Field, format, sep string) string {
	var out []string
	for _, f := range fields {
		out = append(out, fmt.Sprintf(format, f.Name))
	}
	return strings.Join(out, sep)
}

// args are the values of the fields, as a driver takes them.
func args(dst []any, row reflect.Value, fields []*schema.Field) []any {
	for _, f := range fields {
		v := row.FieldByIndex(f.Index)
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				dst = append(dst, nil)
				continue
			}
			v = v.Elem()
		}
		switch v.Kind() {
		case reflect.Int64, reflect.Int32, reflect.Int16, reflect.Int8, reflect.Int:
			dst = append(dst, v.Int())
		case reflect.String:
			dst = append(dst, v.String())
		case reflect.Slice:
			if v.IsNil() {
				dst = append(dst, nil)
			} else {
				dst = append(dst, v.Bytes())
			}
		default:
			dst = append(dst, v.Interface())
		}
	}
	return dst
}

// writer writes within one transaction.
type writer struct {
	db    *DB
	tx    bun.Tx
	stmts map[string]*sql.Stmt // SQLite: those of this transaction
	args  []any
	books []*book // what became of firings, if all of it is stored
}

func (db *DB) writer(tx bun.Tx) *writer {
	return &writer{db: db, tx: tx, stmts: map[string]*sql.Stmt{}}
}

// exec runs a statement whose text is prepared on SQLite and formatted by bun on MySQL.
func (w *writer) exec(ctx context.Context, text string, args ...any) (sql.Result, error) {
	stmt := w.stmts[text]
	if stmt == nil {
		prepared := w.db.prepared[text]
		if prepared == nil {
			return w.tx.ExecContext(ctx, text, args...)
		}
		stmt = w.tx.StmtContext(ctx, prepared) //nolint:sqlclosecheck // closed with its transaction
		w.stmts[text] = stmt
	}
	return stmt.ExecContext(ctx, args...)
}

// insert adds the rows; a duplicate fails the statement it is in.
func (t *table[R]) insert(ctx context.Context, w *writer, rows []R) error {
	if len(rows) == 0 {
		return nil
	}
	if w.db.singleRows {
		for i := range rows {
			w.args = args(w.args[:0], reflect.ValueOf(&rows[i]).Elem(), t.fields)
			if _, err := w.exec(ctx, t.insertText, w.args...); err != nil {
				return fmt.Errorf("insert into %s: %w", t.name, err)
			}
		}
		return nil
	}
	for chunk := range t.chunks(rows, w.db.maxPacket) {
		if _, err := w.tx.NewInsert().Model(&chunk).Returning("NULL").Exec(ctx); err != nil {
			return fmt.Errorf("insert into %s: %w", t.name, err)
		}
	}
	return nil
}

// update writes the mutable columns of rows that exist; others are left out, never
// inserted.
func (t *table[R]) update(ctx context.Context, w *writer, rows []R) error {
	if len(rows) == 0 {
		return nil
	}
	if w.db.singleRows || len(rows) <= 2 {
		for i := range rows {
			row := reflect.ValueOf(&rows[i]).Elem()
			w.args = args(args(args(w.args[:0], row, t.sets), row, t.keys), row, t.given)
			if _, err := w.exec(ctx, t.updateText, w.args...); err != nil {
				return fmt.Errorf("update %s: %w", t.name, err)
			}
		}
		return nil
	}
	for chunk := range t.chunks(rows, w.db.maxPacket) {
		if err := t.updateMany(ctx, w, chunk); err != nil {
			return fmt.Errorf("update %s: %w", t.name, err)
		}
	}
	return nil
}

// updateMany updates by an INSERT that finds every row there. The rows are locked first, so
// that one which is gone is left out and not inserted.
func (t *table[R]) updateMany(ctx context.Context, w *writer, rows []R) error {
	text, keys := t.keyList(rows)
	var there []R
	err := w.tx.NewRaw("SELECT "+list(t.keys, "%s", ", ")+" FROM "+t.name+" WHERE "+text+w.db.forUpdate, keys...).Scan(ctx, &there)
	if err != nil {
		return err
	}
	if len(there) < len(rows) {
		found := map[string]bool{}
		for i := range there {
			found[t.keyOf(&there[i])] = true
		}
		rows = slices.DeleteFunc(slices.Clone(rows), func(r R) bool { return !found[t.keyOf(&r)] })
		if len(rows) == 0 {
			return nil
		}
	}
	return t.overwrite(ctx, w, rows)
}

// overwrite updates rows that this transaction has locked, so that each of them is there.
func (t *table[R]) overwrite(ctx context.Context, w *writer, rows []R) error {
	q := w.tx.NewInsert().Model(&rows).Returning("NULL").On("DUPLICATE KEY UPDATE")
	guard := strings.ReplaceAll(t.guard, "{attempt}", "VALUES(attempt)")
	for _, f := range t.sets {
		if t.guard == "" {
			q = q.Set(f.Name + " = VALUES(" + f.Name + ")")
		} else {
			q = q.Set(f.Name + " = IF(" + guard + ", VALUES(" + f.Name + "), " + f.Name + ")")
		}
	}
	_, err := q.Exec(ctx)
	return err
}

func (t *table[R]) keyOf(row *R) string {
	return fmt.Sprintf("%#v", args(nil, reflect.ValueOf(row).Elem(), t.keys))
}

// keyList is a condition that names the rows by their keys.
func (t *table[R]) keyList(rows []R) (string, []any) {
	var values []any
	for i := range rows {
		values = args(values, reflect.ValueOf(&rows[i]).Elem(), t.keys)
	}
	one := "(" + strings.Repeat("?, ", len(t.keys)-1) + "?)"
	return "(" + list(t.keys, "%s", ", ") + ") IN (" + strings.Repeat(one+", ", len(rows)-1) + one + ")", values
}

// remove deletes by key.
func (t *table[R]) remove(ctx context.Context, w *writer, rows []R) error {
	if w.db.singleRows {
		for i := range rows {
			w.args = args(w.args[:0], reflect.ValueOf(&rows[i]).Elem(), t.keys)
			if _, err := w.exec(ctx, t.deleteText, w.args...); err != nil {
				return fmt.Errorf("delete from %s: %w", t.name, err)
			}
		}
		return nil
	}
	for chunk := range slices.Chunk(rows, maxRows) {
		text, keys := t.keyList(chunk)
		if _, err := w.tx.ExecContext(ctx, "DELETE FROM "+t.name+" WHERE "+text, keys...); err != nil {
			return fmt.Errorf("delete from %s: %w", t.name, err)
		}
	}
	return nil
}

// maxRows bounds a statement on MySQL, as maxPacket does.
const maxRows = 500

// chunks cuts rows so that each part fits a statement.
func (t *table[R]) chunks(rows []R, maxPacket int) func(yield func([]R) bool) {
	return func(yield func([]R) bool) {
		from, size := 0, 0
		for i := range rows {
			n := t.size(&rows[i])
			if i > from && (size+n > maxPacket || i-from >= maxRows) {
				if !yield(rows[from:i]) {
					return
				}
				from, size = i, 0
			}
			size += n
		}
		if from < len(rows) {
			yield(rows[from:])
		}
	}
}

// size is an upper bound of the row as text: bytes as hex, every character escaped.
func (t *table[R]) size(row *R) int {
	n := 22 * len(t.fields)
	v := reflect.ValueOf(row).Elem()
	for _, f := range t.fields {
		if fv := v.FieldByIndex(f.Index); fv.Kind() == reflect.String || fv.Kind() == reflect.Slice {
			n += 2 * fv.Len()
		}
	}
	return n
}
