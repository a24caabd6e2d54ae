package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// readRows reads the rows of tables from an SQL dump or JSON. JSON is rows of the first table: a
// list, one after another, or either under "data"; or an object that has rows by the names of
// tables. Columns may be written like_this or likeThis.
func readRows(data []byte, tables ...string) (map[string][]row, error) {
	if len(data) > MaxInput {
		return nil, fmt.Errorf("the file has more than %d bytes; take only the tables %s into it", MaxInput, strings.Join(tables, ", "))
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	trimmed := bytes.TrimLeft(data, " \t\r\n")
	var rows map[string][]row
	var err error
	if len(trimmed) > 0 && (trimmed[0] == '{' || trimmed[0] == '[') {
		rows, err = readJSON(data, tables)
	} else {
		rows, err = readDump(data, tables...)
	}
	if err == nil && len(rows[tables[0]]) == 0 {
		err = fmt.Errorf("there are no rows of %s; give a dump with its INSERTs, or its rows as JSON", tables[0])
	}
	return rows, err
}

// jsonRows collects rows.
type jsonRows struct {
	tables []string
	rows   map[string][]row
	count  int
}

func readJSON(data []byte, tables []string) (map[string][]row, error) {
	j := &jsonRows{tables: tables, rows: map[string][]row{}}
	for values := json.NewDecoder(bytes.NewReader(data)); ; {
		var one json.RawMessage
		err := values.Decode(&one)
		if errors.Is(err, io.EOF) {
			return j.rows, nil
		}
		if err == nil {
			err = j.add(tables[0], one, 0)
		}
		if err != nil {
			return nil, fmt.Errorf("near byte %d: %w", values.InputOffset(), err)
		}
	}
}

// add takes a list of rows, a row, or what rows are wrapped in.
func (j *jsonRows) add(table string, value json.RawMessage, depth int) error {
	if bytes.HasPrefix(value, []byte("[")) && depth < 8 {
		var list []json.RawMessage
		if err := json.Unmarshal(value, &list); err != nil {
			return err
		}
		for _, one := range list {
			if err := j.add(table, one, depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(value, &object); err != nil || object == nil {
		return errors.New("a row is not a JSON object")
	}
	wrapped := false
	for key, inner := range object {
		name := snake(key)
		known := slices.Contains(j.tables, name)
		isList := bytes.HasPrefix(inner, []byte("["))
		if (known || name == "data" || name == "content" || name == "rows") && (isList || name == "data" && bytes.HasPrefix(inner, []byte("{"))) && depth < 8 {
			to := table
			if known {
				to = name
			}
			wrapped = true
			if err := j.add(to, inner, depth+1); err != nil {
				return err
			}
		}
	}
	if wrapped {
		return nil
	}
	if j.count++; j.count > MaxRows {
		return fmt.Errorf("there are more than %d rows", MaxRows)
	}
	r := row{}
	for key, inner := range object {
		if text, null := jsonText(inner); !null {
			r[snake(key)] = text
		}
	}
	j.rows[table] = append(j.rows[table], r)
	return nil
}

// jsonText is a value as a column would hold it.
func jsonText(v json.RawMessage) (text string, null bool) {
	if string(v) == "null" {
		return "", true
	}
	if err := json.Unmarshal(v, &text); err == nil {
		return text, false
	}
	return string(v), false
}

// snake writes jobDesc as job_desc.
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 && !strings.HasSuffix(b.String(), "_") {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// get is the first of some columns that is set.
func (r row) get(columns ...string) string {
	for _, c := range columns {
		if v := strings.TrimSpace(r[c]); v != "" {
			return v
		}
	}
	return ""
}

// int is a whole number; 0 if it is none.
func (r row) int(column string) int64 {
	n, err := strconv.ParseInt(r.get(column), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// float is a number; 0 if it is none.
func (r row) float(column string) float64 {
	f, err := strconv.ParseFloat(r.get(column), 64)
	if err != nil || f != f { // NaN
		return 0
	}
	return f
}
