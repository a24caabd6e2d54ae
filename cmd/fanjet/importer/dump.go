package importer

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// row is a row of a table by its columns. What is NULL is not in it.
type row map[string]string

// dump reads the rows of some tables out of an SQL dump of MySQL or MariaDB.
type dump struct {
	data    []byte
	at      int
	tables  []string
	columns map[string][]string // of CREATE TABLE
	rows    map[string][]row
	count   int
}

// readDump returns the rows of the tables by their names.
func readDump(data []byte, tables ...string) (map[string][]row, error) {
	d := &dump{data: data, tables: tables, columns: map[string][]string{}, rows: map[string][]row{}}
	for {
		d.space()
		if d.at >= len(d.data) {
			return d.rows, nil
		}
		if err := d.statement(); err != nil {
			return nil, fmt.Errorf("line %d: %w", 1+bytes.Count(d.data[:min(d.at, len(d.data))], []byte("\n")), err)
		}
	}
}

// space skips blanks and comments.
func (d *dump) space() {
	for d.at < len(d.data) {
		rest := d.data[d.at:]
		switch {
		case strings.IndexByte(" \t\r\n", rest[0]) >= 0:
			d.at++
		case rest[0] == '#', bytes.HasPrefix(rest, []byte("--")) && (len(rest) == 2 || strings.IndexByte(" \t\r\n", rest[2]) >= 0):
			d.skipPast("\n")
		case bytes.HasPrefix(rest, []byte("/*")):
			d.skipPast("*/")
		default:
			return
		}
	}
}

func (d *dump) skipPast(end string) {
	i := bytes.Index(d.data[d.at:], []byte(end))
	if i < 0 {
		d.at = len(d.data)
		return
	}
	d.at += i + len(end)
}

func isWord(c byte) bool {
	return c == '_' || c == '$' || c >= 0x80 || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// word is the bare word that comes next, in capitals; empty if there is none.
func (d *dump) word() string {
	d.space()
	start := d.at
	for d.at < len(d.data) && isWord(d.data[d.at]) {
		d.at++
	}
	return strings.ToUpper(string(d.data[start:d.at]))
}

// next takes a character if it is the one that comes next.
func (d *dump) next(c byte) bool {
	d.space()
	if d.at < len(d.data) && d.data[d.at] == c {
		d.at++
		return true
	}
	return false
}

// statement reads one statement and its semicolon.
func (d *dump) statement() error {
	switch d.word() {
	case "CREATE":
		if d.word() == "TABLE" {
			if err := d.create(); err != nil {
				return err
			}
		}
	case "INSERT", "REPLACE":
		if err := d.insert(); err != nil {
			return err
		}
	case "DELIMITER": // of the client: what follows is no statement
		d.skipPast("\n")
		return nil
	}
	return d.skipTo("")
}

// skipTo goes on to one of the ends, which it does not take, or past a semicolon. What stands
// in quotes or parentheses is passed over.
func (d *dump) skipTo(ends string) error {
	for depth := 0; ; {
		d.space()
		if d.at >= len(d.data) {
			return nil
		}
		c := d.data[d.at]
		switch {
		case depth == 0 && strings.IndexByte(ends, c) >= 0:
			return nil
		case c == '\'' || c == '"' || c == '`':
			if _, err := d.quoted(); err != nil {
				return err
			}
			continue
		case c == '(':
			depth++
		case c == ')' && depth > 0:
			depth--
		case c == ';':
			d.at++
			return nil
		}
		d.at++
	}
}

// name is the name of a table or column, without that of its database.
func (d *dump) name() (string, error) {
	for {
		d.space()
		var name string
		if d.at < len(d.data) && strings.IndexByte("`\"", d.data[d.at]) >= 0 {
			var err error
			if name, err = d.quoted(); err != nil {
				return "", err
			}
		} else {
			name = strings.ToLower(d.word())
		}
		if !d.next('.') {
			return strings.ToLower(name), nil
		}
	}
}

// create learns the columns of a table.
func (d *dump) create() error {
	start := d.at
	if d.word() == "IF" {
		d.word() // NOT
		d.word() // EXISTS
	} else {
		d.at = start
	}
	table, err := d.name()
	if err != nil || !slices.Contains(d.tables, table) || !d.next('(') {
		return err
	}
	var columns []string
	for {
		d.space()
		bare := d.at < len(d.data) && isWord(d.data[d.at])
		name, err := d.name()
		if err != nil {
			return err
		}
		keys := []string{"primary", "key", "unique", "index", "constraint", "fulltext", "spatial", "check", "foreign"}
		if name != "" && (!bare || !slices.Contains(keys, name)) {
			columns = append(columns, name)
		}
		if err := d.skipTo(",)"); err != nil {
			return err
		}
		if !d.next(',') {
			d.columns[table] = columns
			return nil
		}
	}
}

// insert reads the rows of one statement.
func (d *dump) insert() error {
	start := d.at
	for w := d.word(); w == "IGNORE" || w == "INTO" || w == "DELAYED" || w == "LOW_PRIORITY" || w == "HIGH_PRIORITY"; w = d.word() {
		start = d.at
	}
	d.at = start
	table, err := d.name()
	if err != nil || !slices.Contains(d.tables, table) {
		return err
	}
	columns := d.columns[table]
	if d.next('(') {
		columns = nil
		for {
			name, err := d.name()
			if err != nil {
				return err
			}
			columns = append(columns, name)
			if !d.next(',') {
				break
			}
		}
		if !d.next(')') {
			return errors.New("the list of columns is not closed")
		}
	}
	if w := d.word(); w != "VALUES" && w != "VALUE" {
		return fmt.Errorf("the INSERT into %s has no VALUES", table)
	}
	if len(columns) == 0 {
		return fmt.Errorf("the columns of %s are not known: dump it with its CREATE TABLE, or with --complete-insert", table)
	}
	for {
		if err := d.tuple(table, columns); err != nil {
			return err
		}
		if !d.next(',') {
			return nil
		}
	}
}

// tuple reads one row.
func (d *dump) tuple(table string, columns []string) error {
	if d.count++; d.count > MaxRows {
		return fmt.Errorf("there are more than %d rows", MaxRows)
	}
	if !d.next('(') {
		return fmt.Errorf("a row of %s does not begin with (", table)
	}
	r := row{}
	for i := 0; ; i++ {
		value, null, err := d.value()
		if err != nil {
			return err
		}
		if i >= len(columns) {
			return fmt.Errorf("a row of %s has more than its %d columns", table, len(columns))
		}
		if !null {
			r[columns[i]] = value
		}
		if d.next(',') {
			continue
		}
		if !d.next(')') {
			return fmt.Errorf("column %s of a row of %s is not understood", columns[i], table)
		}
		if i+1 != len(columns) {
			return fmt.Errorf("a row of %s has %d of its %d columns", table, i+1, len(columns))
		}
		d.rows[table] = append(d.rows[table], r)
		return nil
	}
}

// value is one value as text.
func (d *dump) value() (text string, null bool, err error) {
	d.space()
	if d.at >= len(d.data) {
		return "", false, errors.New("the file ends inside a row")
	}
	if c := d.data[d.at]; c == '\'' || c == '"' {
		text, err = d.quoted()
		return text, false, err
	}
	start := d.at
	for d.at < len(d.data) && (isWord(d.data[d.at]) || strings.IndexByte("+-.", d.data[d.at]) >= 0) {
		d.at++
	}
	bare := string(d.data[start:d.at])
	lower := strings.ToLower(bare)
	quote := d.at < len(d.data) && strings.IndexByte("'\"", d.data[d.at]) >= 0
	switch {
	case bare == "":
		return "", false, fmt.Errorf("unexpected %q", d.data[d.at])
	case lower == "null":
		return "", true, nil
	case quote && (lower == "x" || lower == "b" || lower == "n" || lower[0] == '_'):
		if text, err = d.quoted(); err == nil && lower == "x" {
			text, err = unhex(text)
		}
		return text, false, err
	case lower[0] == '_': // a character set, apart from its text
		return d.value1()
	case strings.HasPrefix(lower, "0x"):
		text, err = unhex(lower[2:])
		return text, false, err
	case d.next('('): // a function
		return bare, false, d.skipCall()
	}
	return bare, false, nil
}

// value1 is the text behind a character set.
func (d *dump) value1() (string, bool, error) {
	d.space()
	if d.at >= len(d.data) || strings.IndexByte("'\"", d.data[d.at]) < 0 {
		return "", false, errors.New("a character set without a text")
	}
	text, err := d.quoted()
	return text, false, err
}

func (d *dump) skipCall() error {
	if err := d.skipTo(")"); err != nil {
		return err
	}
	if !d.next(')') {
		return errors.New("a call is not closed")
	}
	return nil
}

func unhex(digits string) (string, error) {
	b, err := hex.DecodeString(digits)
	if err != nil {
		return "", errors.New("not a hexadecimal value")
	}
	return strings.ToValidUTF8(string(b), ""), nil
}

// quoted reads a text or name in quotes.
func (d *dump) quoted() (string, error) {
	quote := d.data[d.at]
	d.at++
	var b []byte
	for d.at < len(d.data) {
		c := d.data[d.at]
		d.at++
		switch {
		case c == '\\' && quote != '`' && d.at < len(d.data):
			b = append(b, unescape(d.data[d.at])...)
			d.at++
		case c != quote:
			b = append(b, c)
		case d.at < len(d.data) && d.data[d.at] == quote:
			b = append(b, c)
			d.at++
		default:
			return strings.ToValidUTF8(string(b), ""), nil
		}
	}
	return "", fmt.Errorf("a %c is not closed", quote)
}

// unescape is what MySQL takes a backslash and this character for.
func unescape(c byte) string {
	switch c {
	case '0':
		return "\x00"
	case 'b':
		return "\b"
	case 'n':
		return "\n"
	case 'r':
		return "\r"
	case 't':
		return "\t"
	case 'Z':
		return "\x1a"
	case '%', '_':
		return "\\" + string(c)
	}
	return string([]byte{c})
}
