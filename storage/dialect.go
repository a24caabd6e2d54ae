package storage

import (
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// dialect is all that differs between the databases.
type dialect struct {
	name string
	// singleRows: writes are prepared single-row statements, as there is no round trip;
	// otherwise one multi-row text a table.
	singleRows bool
	forUpdate  string // ends a SELECT that locks what it reads
	nowSQL     string // empty: the process's clock is the database's
	ddl        *strings.Replacer
	duplicate  func(error) bool // a unique fact exists already
	refused    func(error) bool // the row is impossible: a CHECK, a NULL, a length
	retryable  func(error) bool // a deadlock or lock timeout: the same again may pass
	away       func(error) bool // the server or the disk cannot be used now
}

// The types of columns. Bounds are in bytes, varchar counts characters, so what is within
// the bound always fits.
var sqliteDialect = dialect{
	name:       "SQLite",
	singleRows: true,
	ddl: strings.NewReplacer(
		"{id}", "integer", "{auto}", "", "{text}", "text", "{mediumtext}", "text", "{blob}", "blob", "{key16}", "blob",
		"{end}", "", "{end_by_key}", " WITHOUT ROWID"),
	duplicate: func(err error) bool {
		return slices.Contains([]int{sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_ROWID}, sqliteCode(err))
	},
	refused: func(err error) bool {
		c := sqliteCode(err)
		return c&0xff == sqlite3.SQLITE_CONSTRAINT || c&0xff == sqlite3.SQLITE_TOOBIG || c&0xff == sqlite3.SQLITE_MISMATCH
	},
	retryable: func(err error) bool {
		c := sqliteCode(err) & 0xff
		return c == sqlite3.SQLITE_BUSY || c == sqlite3.SQLITE_LOCKED
	},
	away: func(err error) bool {
		return errors.Is(err, driver.ErrBadConn) || slices.Contains([]int{
			sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY,
			sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PROTOCOL,
		}, sqliteCode(err)&0xff)
	},
}

// sqliteCode is the extended result code in err, or 0.
func sqliteCode(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}

var mysqlDialect = dialect{
	name:      "MySQL",
	forUpdate: " FOR UPDATE",
	nowSQL:    "SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)",
	ddl: strings.NewReplacer(
		"{id}", "bigint", "{auto}", "AUTO_INCREMENT", "{text}", "text", "{mediumtext}", "mediumtext", "{blob}", "longblob", "{key16}", "binary(16)",
		"{end}", mysqlTable, "{end_by_key}", mysqlTable),
	duplicate: mysqlCodes(1062, 1586),
	refused:   mysqlCodes(1062, 1586, 3819, 4025, 1406, 1264, 1048, 1366, 1265, 1364),
	retryable: mysqlCodes(1213, 1205, 1020),
	away: func(err error) bool {
		var neterr net.Error
		return errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, io.EOF) ||
			errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &neterr) || mysqlAway(err)
	},
}

const mysqlTable = " ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"

// mysqlAway: shutting down, too many connections, read-only, out of memory or disk.
var mysqlAway = mysqlCodes(1053, 1040, 1290, 1836, 1203, 1037, 1021, 1114, 1077, 1927, 2006, 2013, 1317, 1836, 1792)

func mysqlCodes(codes ...uint16) func(error) bool {
	return func(err error) bool {
		var e *mysql.MySQLError
		return errors.As(err, &e) && slices.Contains(codes, e.Number)
	}
}
