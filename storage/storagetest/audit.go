package storagetest

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/access"
)

// note is an audit record of the action.
func note(action string) engine.AuditFunc {
	return access.Chain(engine.AuditRecord{At: base, ActorKind: engine.ActorSystem, Action: action, Outcome: engine.OutcomeDone})
}

// records reads the whole log, some at a time.
func records(ctx context.Context, s engine.Store) iter.Seq2[engine.AuditRecord, error] {
	return func(yield func(engine.AuditRecord, error) bool) {
		for seq := int64(0); ; {
			page, err := s.AuditAfter(ctx, seq, 7)
			if err != nil {
				yield(engine.AuditRecord{}, err)
				return
			}
			if len(page) == 0 {
				return
			}
			for _, r := range page {
				if !yield(r, nil) {
					return
				}
				seq = r.Seq
			}
		}
	}
}

// auditOf is the whole log, which must verify.
func auditOf(t *testing.T, s engine.Store) []engine.AuditRecord {
	t.Helper()
	var out []engine.AuditRecord
	for r, err := range records(t.Context(), s) {
		require.NoError(t, err)
		out = append(out, r)
	}
	last, err := access.VerifyAudit(records(t.Context(), s), engine.AuditRecord{})
	require.NoError(t, err)
	require.EqualValues(t, len(out), last.Seq)
	return out
}

func exerciseAudit(t *testing.T, s engine.Store) {
	ctx := t.Context()
	_, err := s.AuditHead(ctx)
	require.ErrorIs(t, err, engine.ErrNotFound)
	full := engine.AuditRecord{
		At: base + 2, ActorKind: engine.ActorToken, Actor: 7, Credential: 8, ActorName: "ada", Action: "jobs.write", App: 3, Target: "job:17", Outcome: engine.OutcomeDone,
		From: "2001:db8::1", Request: "r-1 💥", Before: []byte(`{"a":"ü"}`), After: []byte{0, 255, '\'', '\\'},
	}
	var all []engine.AuditRecord
	for _, r := range []engine.AuditRecord{
		{At: base + 1, ActorKind: engine.ActorNobody, Action: "login", Outcome: engine.OutcomeFailed, Target: "user:ada"},
		full,
		{At: base, ActorKind: engine.ActorUser, Actor: 7, Action: "jobs.write", App: 4, Target: "job:18", Outcome: engine.OutcomeDenied, Before: []byte{}},
	} {
		stored, err := s.AppendAudit(ctx, access.Chain(r))
		require.NoError(t, err)
		all = append(all, *stored)
	}
	want := full
	want.Seq, want.Prev, want.Hash = 2, all[0].Hash, all[1].Hash
	require.Equal(t, want, all[1])
	require.Equal(t, all, auditOf(t, s))
	head, err := s.AuditHead(ctx)
	require.NoError(t, err)
	require.Equal(t, all[2], *head)

	for _, c := range []struct {
		q    engine.AuditQuery
		want []engine.AuditRecord
	}{
		{engine.AuditQuery{Limit: 10}, []engine.AuditRecord{all[2], all[1], all[0]}},
		{engine.AuditQuery{Limit: 1, Before: 3}, all[1:2]},
		{engine.AuditQuery{Limit: 10, Actor: 7}, []engine.AuditRecord{all[2], all[1]}},
		{engine.AuditQuery{Limit: 10, Actor: 7, App: 3}, all[1:2]},
		{engine.AuditQuery{Limit: 10, Target: "job:18"}, all[2:]},
		{engine.AuditQuery{Limit: 10, Target: "job:18' OR '1'='1"}, nil},
		{engine.AuditQuery{Limit: 10, Action: "login"}, all[:1]},
		{engine.AuditQuery{Limit: 10, From: base + 1, To: base + 1}, all[:1]},
		{engine.AuditQuery{}, nil},
	} {
		got, err := s.AuditRecords(ctx, c.q)
		require.NoError(t, err)
		require.ElementsMatch(t, c.want, got, "%+v", c.q)
		if len(c.want) > 1 {
			require.Equal(t, c.want, got, "newest first")
		}
	}

	// What does not follow, or cannot be stored, is refused and leaves no gap.
	for name, spoil := range map[string]func(r *engine.AuditRecord){
		"a gap":            func(r *engine.AuditRecord) { r.Seq++ },
		"a fork":           func(r *engine.AuditRecord) { r.Seq-- },
		"another chain":    func(r *engine.AuditRecord) { r.Prev[0]++ },
		"no hash":          func(r *engine.AuditRecord) { r.Hash = [32]byte{} },
		"nobody":           func(r *engine.AuditRecord) { r.ActorKind = "" },
		"no outcome":       func(r *engine.AuditRecord) { r.Outcome = "" },
		"text that is not": func(r *engine.AuditRecord) { r.Target = "\xff" },
	} {
		_, err := s.AppendAudit(ctx, func(prev engine.AuditRecord) engine.AuditRecord {
			r := note("x")(prev)
			spoil(&r)
			return r
		})
		require.ErrorIs(t, err, engine.ErrInvalid, name)
	}
	_, err = s.AppendAudit(ctx, func(prev engine.AuditRecord) engine.AuditRecord {
		r := note("x")(prev)
		r.After = bytes.Repeat([]byte("x"), engine.MaxAuditBody+1)
		return r
	})
	require.ErrorIs(t, err, engine.ErrTooLarge)
	require.Len(t, auditOf(t, s), 3)

	// A change and its record are one: where the record is refused nothing is changed.
	ada := join(t, s, person("ada"))
	fork := func(prev engine.AuditRecord) engine.AuditRecord { r := note("x")(prev); r.Seq--; return r }
	require.ErrorIs(t, s.SetPassword(ctx, ada.ID, "$new", false, base, fork), engine.ErrInvalid)
	require.Equal(t, ada, user(t, s, ada.ID))
	_, err = s.SaveUser(ctx, person("eve"), nil, fork)
	require.ErrorIs(t, err, engine.ErrInvalid)
	_, err = s.UserByName(ctx, "eve")
	require.ErrorIs(t, err, engine.ErrNotFound)

	// What somebody changes past all checks is found, and a log cut short takes no more.
	raw, ok := s.(Raw)
	require.True(t, ok)
	_, err = raw.RawExec(ctx, "UPDATE audit SET actor_name = 'eve' WHERE seq = 2")
	require.NoError(t, err)
	var broken *access.BrokenError
	_, err = access.VerifyAudit(records(ctx, s), engine.AuditRecord{})
	require.ErrorAs(t, err, &broken)
	require.EqualValues(t, 2, broken.Seq)
	_, err = raw.RawExec(ctx, "DELETE FROM audit WHERE seq = 2")
	require.NoError(t, err)
	_, err = access.VerifyAudit(records(ctx, s), engine.AuditRecord{})
	require.ErrorAs(t, err, &broken)
	require.EqualValues(t, 2, broken.Seq)
	_, err = raw.RawExec(ctx, "DELETE FROM audit WHERE seq = 3")
	require.NoError(t, err)
	_, err = s.AppendAudit(ctx, note("x"))
	require.ErrorIs(t, err, engine.ErrConflict)
	require.ErrorContains(t, err, "record 3")
}

// Eight writers at once, some with changes of their own: the chain is one, without a gap.
func exerciseAuditRaces(t *testing.T, s engine.Store) {
	ctx := t.Context()
	var users []engine.User
	for _, name := range []string{"a", "b", "c", "d"} {
		users = append(users, join(t, s, person(name)))
	}
	const each = 25
	var wg sync.WaitGroup
	errs := make(chan error, 8*each)
	for w := range 8 {
		wg.Go(func() {
			for n := range each {
				u := users[(w+n)%len(users)]
				var err error
				switch {
				case w < 5:
					_, err = s.AppendAudit(ctx, note("jobs.write"))
				case w == 5:
					err = s.SetPassword(ctx, u.ID, "$x", false, base, note("self.manage"))
				case w == 6:
					err = s.DeleteSessions(ctx, u.ID, base, note("sessions.end"))
				default:
					// A change that is refused takes no number.
					if _, err = s.SaveUser(ctx, person("a"), nil, note("users.manage")); errors.Is(err, engine.ErrConflict) {
						_, err = s.AppendAudit(ctx, note("users.manage"))
					}
				}
				errs <- err
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	require.Len(t, auditOf(t, s), 8*each)
}

func exerciseSecrets(t *testing.T, s engine.Store) {
	ctx := t.Context()
	ring, err := access.ParseKeyring([]byte(access.FormatKey("k1", [32]byte{1})))
	require.NoError(t, err)
	seal := func(app int64, name, value string) []byte {
		box, err := ring.Seal(access.SecretLabel(app, name), []byte(value), [access.SealRandom]byte{byte(app)})
		require.NoError(t, err)
		return box
	}
	db := engine.Secret{App: 7, Name: "db", KeyID: "k1", Sealed: seal(7, "db", "hunter2"), UpdatedBy: 1, CreatedAt: base, UpdatedAt: base}
	v1, err := s.SaveSecret(ctx, db, note("secrets.write"))
	require.NoError(t, err)
	db.Version = 1
	require.Equal(t, db, *v1)
	again := db
	again.Version = 0
	_, err = s.SaveSecret(ctx, again, note("secrets.write"))
	require.ErrorIs(t, err, engine.ErrConflict)
	change := db
	change.Sealed, change.UpdatedBy, change.UpdatedAt, change.CreatedAt = seal(7, "db", "other"), 2, base+1, base+1
	v2, err := s.SaveSecret(ctx, change, nil)
	require.NoError(t, err)
	change.Version, change.CreatedAt = 2, base
	require.Equal(t, change, *v2)
	_, err = s.SaveSecret(ctx, db, nil)
	require.ErrorIs(t, err, engine.ErrConflict, "the version has moved on")
	got, err := s.Secret(ctx, 7, "db")
	require.NoError(t, err)
	require.Equal(t, change, *got)
	value, err := ring.Open(access.SecretLabel(7, "db"), got.Sealed)
	require.NoError(t, err)
	require.Equal(t, "other", string(value))
	_, err = s.Secret(ctx, 8, "db")
	require.ErrorIs(t, err, engine.ErrNotFound, "of another app")

	old := engine.Secret{App: 8, Name: "api", KeyID: "k0", Sealed: []byte{1}, CreatedAt: base, UpdatedAt: base}
	_, err = s.SaveSecret(ctx, old, nil)
	require.NoError(t, err)
	big := engine.Secret{App: 7, Name: "a", KeyID: "k2", Sealed: seal(7, "a", string(make([]byte, engine.MaxSecret))), CreatedAt: base, UpdatedAt: base}
	_, err = s.SaveSecret(ctx, big, nil)
	require.NoError(t, err)
	list, err := s.Secrets(ctx, 7, "", 10)
	require.NoError(t, err)
	change.Sealed, big.Sealed, big.Version, old.Version = nil, nil, 1, 1
	require.Equal(t, []engine.Secret{big, change}, list, "a list holds nothing that is sealed")
	page, err := s.Secrets(ctx, 7, "a", 10)
	require.NoError(t, err)
	require.Len(t, page, 1)
	other, err := s.SecretsUnderOtherKeys(ctx, "k2", 10)
	require.NoError(t, err)
	require.Len(t, other, 2)
	require.Equal(t, old, other[1])
	require.NotEmpty(t, other[0].Sealed)

	for _, bad := range []engine.Secret{
		{App: 7, Name: "x", KeyID: "k1"}, {Name: "x", KeyID: "k1", Sealed: []byte{1}}, {App: 7, Name: "X", KeyID: "k1", Sealed: []byte{1}}, {App: 7, Name: "x", Sealed: []byte{1}},
	} {
		_, err := s.SaveSecret(ctx, bad, nil)
		require.ErrorIs(t, err, engine.ErrInvalid)
	}
	_, err = s.SaveSecret(ctx, engine.Secret{App: 7, Name: "x", KeyID: "k1", Sealed: make([]byte, engine.MaxSecret+1000)}, nil)
	require.ErrorIs(t, err, engine.ErrTooLarge)
	_, err = s.SaveSecret(ctx, engine.Secret{App: 7, Name: "none", Version: 3, KeyID: "k1", Sealed: []byte{1}}, nil)
	require.ErrorIs(t, err, engine.ErrNotFound)

	require.ErrorIs(t, s.DeleteSecret(ctx, 7, "db", 1, note("x")), engine.ErrConflict)
	require.NoError(t, s.DeleteSecret(ctx, 7, "db", 2, note("secrets.write")))
	require.ErrorIs(t, s.DeleteSecret(ctx, 7, "db", 2, note("x")), engine.ErrNotFound)
	require.Len(t, auditOf(t, s), 2)
}

// Rows that no bug may store.
func exerciseImpossibleIdentities(t *testing.T, s engine.Store) {
	raw, ok := s.(Raw)
	require.True(t, ok)
	ctx := t.Context()
	ada, robot := join(t, s, person("ada")), join(t, s, engine.User{Name: "robot", Kind: engine.UserService})
	in := session(ada)
	require.NoError(t, s.SaveSession(ctx, in, note("login")))
	require.NoError(t, s.SaveCode(ctx, engine.Code{ID: newID(), Purpose: engine.CodeSetup}))
	require.NoError(t, s.SaveToken(ctx, engine.Token{ID: newID(), User: ada.ID, ExpiresAt: 1}, nil))
	_, err := s.SaveSecret(ctx, engine.Secret{App: 7, Name: "x", KeyID: "k", Sealed: []byte{1}}, nil)
	require.NoError(t, err)
	for _, bad := range []struct {
		text string
		id   int64
	}{
		{"UPDATE users SET name = '' WHERE id = ?", ada.ID},
		{"UPDATE users SET name = 'robot' WHERE id = ?", ada.ID},
		{"UPDATE users SET kind = 'x' WHERE id = ?", ada.ID},
		{"UPDATE users SET issuer = 'x' WHERE id = ?", ada.ID},
		{"UPDATE users SET version = 0 WHERE id = ?", ada.ID},
		{"UPDATE users SET disabled = 2 WHERE id = ?", ada.ID},
		{"UPDATE users SET failed = -1 WHERE id = ?", ada.ID},
		{"UPDATE users SET password = 'x' WHERE id = ?", robot.ID},
		{"UPDATE users SET totp = 'x' WHERE id = ?", robot.ID},
		{"UPDATE sessions SET hash = 'x' WHERE id = ?", in.ID},
		{"UPDATE sessions SET user_id = 0 WHERE id = ?", in.ID},
		{"UPDATE login_codes SET user_id = 5 WHERE expires_at = ?", 0},
		{"UPDATE login_codes SET purpose = 'x' WHERE expires_at = ?", 0},
		{"UPDATE tokens SET hash = 'x' WHERE user_id = ?", ada.ID},
		{"UPDATE tokens SET expires_at = 0 WHERE user_id = ?", ada.ID},
		{"UPDATE audit SET hash = 'x' WHERE seq = ?", 1},
		{"UPDATE audit SET seq = 0 WHERE seq = ?", 1},
		{"UPDATE audit_head SET one = 2 WHERE one = ?", 1},
		{"UPDATE secrets SET key_id = '' WHERE app_id = ?", 7},
		{"UPDATE secrets SET version = 0 WHERE app_id = ?", 7},
	} {
		_, err := raw.RawExec(ctx, bad.text, bad.id)
		require.Error(t, err, bad.text)
	}
	_, err = raw.RawExec(ctx, "INSERT INTO audit_head (one, seq) VALUES (1, 0)")
	require.Error(t, err)
}
