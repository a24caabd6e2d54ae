package storage

import (
	"context"
	"fmt"
	"slices"

	"github.com/uptrace/bun"

	"github.com/fanjet/fanjet/engine"
)

const maxServers = 1023

type serverRow struct {
	bun.BaseModel `bun:"table:servers"`

	Number    int16  `bun:"number,pk"`
	Name      string `bun:"name"`
	Token     int64  `bun:"token"`
	Until     int64  `bun:"lease_until"`
	StartedAt int64  `bun:"started_at"`
	LastID    int64  `bun:"last_id"`
}

func (r *serverRow) noun() engine.Server {
	return engine.Server{Number: r.Number, Name: r.Name, Token: uint64(r.Token), Until: r.Until, StartedAt: r.StartedAt, LastID: r.LastID}
}

// JoinServer takes a free or expired server number for ttl ms and returns the row; its
// LastID is that of the number's last holder.
func (db *DB) JoinServer(ctx context.Context, name string, token uint64, ttl int64) (*engine.Server, error) {
	if err := engine.CheckText("server name", name, engine.MaxKey); err != nil {
		return nil, err
	}
	for {
		var out *engine.Server
		err := db.inTx(ctx, func(ctx context.Context, tx bun.Tx) (err error) {
			out, err = db.join(ctx, tx, name, token, ttl)
			return err
		})
		if err != nil && db.duplicate(err) {
			continue // another server took that number meanwhile
		}
		if err != nil {
			return nil, db.wrap(err, "join as server %s", name)
		}
		return out, nil
	}
}

func (db *DB) join(ctx context.Context, tx bun.Tx, name string, token uint64, ttl int64) (*engine.Server, error) {
	var rows []serverRow
	if err := tx.NewRaw("SELECT * FROM servers ORDER BY number"+db.forUpdate).Scan(ctx, &rows); err != nil {
		return nil, err
	}
	now, err := db.now(ctx, tx) // after the rows are locked, so that no wait makes it old
	if err != nil {
		return nil, err
	}
	row := serverRow{Name: name, Token: int64(token), Until: now + ttl, StartedAt: now}
	if i := slices.IndexFunc(rows, func(r serverRow) bool { return r.Until <= now }); i >= 0 {
		row.Number, row.LastID = rows[i].Number, rows[i].LastID
		// Shards of the number's last holder are nobody's: the new one must not seem to own
		// them.
		if _, err := tx.ExecContext(ctx, "UPDATE shards SET owner = 0, epoch = epoch + 1 WHERE owner = ?", row.Number); err != nil {
			return nil, err
		}
		_, err = tx.NewUpdate().Model(&row).WherePK().Exec(ctx)
	} else {
		row.Number = firstFree(rows)
		if row.Number > maxServers {
			return nil, fmt.Errorf("all %d server numbers are in use: %w", maxServers, engine.ErrConflict)
		}
		_, err = tx.NewInsert().Model(&row).Returning("NULL").Exec(ctx)
	}
	if err != nil {
		return nil, err
	}
	s := row.noun()
	return &s, nil
}

// firstFree is the lowest number that no row has; rows are ordered by number.
func firstFree(rows []serverRow) int16 {
	free := int16(1)
	for _, r := range rows {
		if r.Number == free {
			free++
		}
	}
	return free
}

// RenewServer moves the lease of number to now+ttl and returns the database's clock;
// ErrFenced if the row is no longer the caller's. lastID is stored with it.
func (db *DB) RenewServer(ctx context.Context, number int16, token uint64, ttl, lastID int64) (int64, error) {
	var now int64
	err := db.inTx(ctx, func(ctx context.Context, tx bun.Tx) (err error) {
		// Read before the row is locked: a wait for it makes the lease shorter, never longer.
		if now, err = db.now(ctx, tx); err != nil {
			return err
		}
		res, err := tx.ExecContext(ctx, "UPDATE servers SET lease_until = ?, last_id = CASE WHEN last_id < ? THEN ? ELSE last_id END "+
			"WHERE number = ? AND token = ? AND lease_until > 0", now+ttl, lastID, lastID, number, int64(token))
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 1 {
			return err
		}
		return engine.ErrFenced
	})
	return now, db.wrap(err, "renew server %d", number)
}

// LeaveServer ends the lease at once and gives the shards up.
func (db *DB) LeaveServer(ctx context.Context, number int16, token uint64) error {
	err := db.inTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		res, err := tx.ExecContext(ctx, "UPDATE servers SET lease_until = 0 WHERE number = ? AND token = ? AND lease_until > 0", number, int64(token))
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return err // another one has the number, and the shards with it
		}
		_, err = tx.ExecContext(ctx, "UPDATE shards SET owner = 0 WHERE owner = ?", number)
		return err
	})
	return db.wrap(err, "leave as server %d", number)
}

// LiveServers lists servers whose lease has not ended, by number.
func (db *DB) LiveServers(ctx context.Context) ([]engine.Server, error) {
	now, err := db.now(ctx, db.read)
	if err != nil {
		return nil, db.wrap(err, "list servers")
	}
	var rows []serverRow
	if err := db.read.NewSelect().Model(&rows).Where("lease_until > ?", now).Order("number").Scan(ctx); err != nil {
		return nil, db.wrap(err, "list servers")
	}
	return nouns(rows, (*serverRow).noun), nil
}

// ShardOwners lists all shards.
func (db *DB) ShardOwners(ctx context.Context) ([]engine.Shard, error) {
	var rows []shardRow
	if err := db.read.NewSelect().Model(&rows).Order("shard").Scan(ctx); err != nil {
		return nil, db.wrap(err, "list shards")
	}
	return nouns(rows, (*shardRow).noun), nil
}

// ClaimShard makes number the owner if the shard has none, or one whose lease has ended, or
// the caller already; the epoch grows by one. ErrConflict if a live server owns it,
// ErrFenced if the caller's own lease is not its any more or has ended.
func (db *DB) ClaimShard(ctx context.Context, shard uint8, number int16, token uint64) (*engine.Shard, error) {
	var row shardRow
	err := db.inTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		now, err := db.now(ctx, tx)
		if err != nil {
			return err
		}
		const live = "EXISTS (SELECT 1 FROM servers WHERE number = ? AND token = ? AND lease_until > ?)"
		res, err := tx.ExecContext(ctx, "UPDATE shards SET owner = ?, epoch = epoch + 1 WHERE shard = ? AND (owner = 0 OR owner = ? "+
			"OR NOT EXISTS (SELECT 1 FROM servers s WHERE s.number = shards.owner AND s.lease_until > ?)) AND "+live,
			number, shard, number, now, number, int64(token), now)
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		if err != nil {
			return err
		}
		if err := tx.NewSelect().Model(&row).Where("shard = ?", shard).Scan(ctx); err != nil || n == 1 {
			return err
		}
		var mine bool
		if err := tx.NewRaw("SELECT "+live, number, int64(token), now).Scan(ctx, &mine); err != nil {
			return err
		}
		if !mine {
			return fmt.Errorf("the lease of server %d has ended: %w", number, engine.ErrFenced)
		}
		return fmt.Errorf("server %d owns it: %w", row.Owner, engine.ErrConflict)
	})
	if err != nil {
		return nil, db.wrap(err, "claim shard %d", shard)
	}
	s := row.noun()
	return &s, nil
}

// ReleaseShard gives one shard up, if it is held at that epoch.
func (db *DB) ReleaseShard(ctx context.Context, shard uint8, number int16, epoch int64) error {
	err := db.inTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE shards SET owner = 0 WHERE shard = ? AND owner = ? AND epoch = ?", shard, number, epoch)
		return err
	})
	return db.wrap(err, "release shard %d", shard)
}
