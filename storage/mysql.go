package storage

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mysqldialect"
	"golang.org/x/mod/semver"

	"github.com/fanjet/fanjet/engine"
)

// sqlMode is the mode of every session: too long and wrong values are errors, and a
// backslash escapes, as bun takes for granted, whatever the server is set to.
const sqlMode = "'STRICT_ALL_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'"

const minPacket = 16 << 20 // holds the largest definition as an argument

// redact hides the password of a URL that may be shown.
func redact(raw string) string {
	if u, err := url.Parse(raw); err == nil {
		return u.Redacted()
	}
	return "(unreadable)"
}

// abandoned is how long a transaction may stand still before the server ends it. A process
// that is frozen in the middle of one keeps its locks, on rows of its shards too, from those
// who are to take over. MySQL has no such bound: there they wait until it goes on or its
// connection breaks.
const abandoned = 5 * time.Second

func (db *DB) openMySQL(ctx context.Context, cfg Config) error {
	db.dialect = mysqlDialect
	dc, err := mysqlConfig(cfg.URL)
	if err != nil {
		return err
	}
	where := fmt.Sprintf("database %s at %s", dc.DBName, dc.Addr)
	version, err := db.mysqlVersion(ctx, dc, cfg.ConnectTimeout)
	if err != nil {
		return fmt.Errorf("%s: %w", where, mysqlHint(err, dc))
	}
	// The isolation of every session, so that no transaction pays a round trip for it. The
	// name differs, and MySQL 8 has lost the old one.
	isolation := "transaction_isolation"
	if strings.Contains(version, "MariaDB") {
		isolation = "tx_isolation"
		dc.Params["idle_transaction_timeout"] = strconv.Itoa(int(abandoned / time.Second))
	}
	if err := mysqlOldEnough(version); err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	dc.Params[isolation] = "'READ-COMMITTED'"
	connector, err := mysql.NewConnector(dc)
	if err != nil {
		return fmt.Errorf("%s: %w: %w", where, engine.ErrInvalid, err)
	}
	pool := sql.OpenDB(connector)
	conns := cfg.MaxConns
	if conns <= 0 {
		conns = 16
	}
	pool.SetMaxOpenConns(conns)
	pool.SetMaxIdleConns(conns)
	pool.SetConnMaxIdleTime(5 * time.Minute)
	db.closers = append(db.closers, pool.Close)
	if err := db.mysqlSettings(ctx, pool); err != nil {
		return fmt.Errorf("%s: %w", where, mysqlHint(err, dc))
	}
	db.write = bun.NewDB(pool, mysqldialect.New(mysqldialect.WithTimeLocation("UTC")))
	db.read = db.write
	return nil
}

// mysqlConfig reads the URL.
func mysqlConfig(raw string) (*mysql.Config, error) {
	const want = "want mysql://user:password@host:3306/database"
	u, err := url.Parse(raw)
	if err != nil {
		// The parser's error would show the URL with its password.
		return nil, fmt.Errorf("database URL cannot be read: %s, with special characters of the password as %%XX: %w", want, engine.ErrInvalid)
	}
	dc := mysql.NewConfig()
	dc.User = u.User.Username()
	dc.Passwd, _ = u.User.Password()
	dc.DBName = strings.TrimPrefix(u.Path, "/")
	if dc.DBName == "" {
		return nil, fmt.Errorf("database URL %s names no database: %s: %w", u.Redacted(), want, engine.ErrInvalid)
	}
	dc.Net, dc.Addr = "tcp", u.Host
	if u.Port() == "" {
		dc.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	dc.Timeout, dc.ReadTimeout, dc.WriteTimeout = 5*time.Second, 30*time.Second, 30*time.Second
	for key, values := range u.Query() {
		v := values[0]
		var err error
		switch key {
		case "socket":
			dc.Net, dc.Addr = "unix", v
		case "tls":
			dc.TLSConfig = v
		case "timeout":
			dc.Timeout, err = time.ParseDuration(v)
		case "read_timeout":
			dc.ReadTimeout, err = time.ParseDuration(v)
		default:
			err = errors.New("unknown; there are socket, tls, timeout and read_timeout")
		}
		if err != nil {
			return nil, fmt.Errorf("database URL %s: parameter %s: %w: %w", u.Redacted(), key, engine.ErrInvalid, err)
		}
	}
	dc.ClientFoundRows = true // a row that is matched and stays equal counts as updated
	dc.Collation = "utf8mb4_bin"
	dc.Loc = time.UTC
	dc.Logger = quiet{}
	dc.Params = map[string]string{"time_zone": "'+00:00'", "sql_mode": sqlMode}
	return dc, nil
}

// quiet drops what the driver would print: each failure comes back as an error too.
type quiet struct{}

func (quiet) Print(...any) {}

// mysqlVersion waits for the server to answer. What it refuses, it will refuse again.
func (db *DB) mysqlVersion(ctx context.Context, dc *mysql.Config, patience time.Duration) (string, error) {
	connector, err := mysql.NewConnector(dc)
	if err != nil {
		return "", fmt.Errorf("%w: %w", engine.ErrInvalid, err)
	}
	pool := sql.OpenDB(connector)
	defer pool.Close()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		var version string
		err := pool.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version)
		if err == nil || !db.away(err) || ctx.Err() != nil {
			return version, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return "", err
		case <-timer.C:
		}
	}
}

// mysqlOldEnough refuses servers that would accept CHECK constraints and ignore them.
func mysqlOldEnough(version string) error {
	number, _, _ := strings.Cut(version, "-")
	oldest, kind := "8.0.16", "MySQL"
	if strings.Contains(version, "MariaDB") {
		oldest, kind = "10.5.0", "MariaDB"
		// Old clients are told 5.5.5-10.11.2-MariaDB.
		if parts := strings.Split(version, "-"); len(parts) > 2 && parts[0] == "5.5.5" {
			number = parts[1]
		}
	}
	if !semver.IsValid("v"+number) || semver.Compare("v"+number, "v"+oldest) < 0 {
		return fmt.Errorf("%s %s is too old: %s or newer is needed: %w", kind, version, oldest, engine.ErrInvalid)
	}
	return nil
}

// mysqlSettings checks what a session must be like, in case a proxy has dropped what the
// driver set.
func (db *DB) mysqlSettings(ctx context.Context, pool *sql.DB) error {
	var mode, client, connection string
	err := pool.QueryRowContext(ctx, "SELECT @@sql_mode, @@character_set_client, @@character_set_connection, @@max_allowed_packet").
		Scan(&mode, &client, &connection, &db.maxPacket)
	switch {
	case err != nil:
		return err
	case strings.Contains(mode, "NO_BACKSLASH_ESCAPES"):
		return fmt.Errorf("the session has sql_mode NO_BACKSLASH_ESCAPES, which would garble text: take it out of the server's or proxy's sql_mode: %w", engine.ErrInvalid)
	case !strings.Contains(mode, "STRICT_"):
		return fmt.Errorf("the session has sql_mode %q, which cuts text silently: allow sessions to set sql_mode, or add STRICT_ALL_TABLES: %w", mode, engine.ErrInvalid)
	case client != "utf8mb4" || connection != "utf8mb4":
		return fmt.Errorf("the connection speaks %s, not utf8mb4, and would lose characters: set skip-character-set-client-handshake off at the server: %w", client, engine.ErrInvalid)
	case db.maxPacket < minPacket:
		return fmt.Errorf("the server's max_allowed_packet is %d bytes: set it to %d or more: %w", db.maxPacket, minPacket, engine.ErrInvalid)
	}
	db.maxPacket = min(db.maxPacket/4, 4<<20)
	return nil
}

// mysqlHint says what to do about a refusal to connect.
func mysqlHint(err error, dc *mysql.Config) error {
	var e *mysql.MySQLError
	if errors.As(err, &e) {
		hint := ""
		switch e.Number {
		case 1045, 1698:
			hint = "the user or password is wrong; check the URL"
		case 1049:
			hint = "the database does not exist; create it: CREATE DATABASE `" + dc.DBName + "` CHARACTER SET utf8mb4"
		case 1044:
			hint = "the user may not use this database; grant it all rights on it"
		}
		if hint != "" {
			return fmt.Errorf("%s: %w: %w", hint, engine.ErrInvalid, err)
		}
	}
	if errors.Is(err, engine.ErrInvalid) {
		return err
	}
	return fmt.Errorf("no answer; is the server up and the address right?: %w: %w", engine.ErrUnavailable, err)
}
