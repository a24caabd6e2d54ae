package engine

import "context"

// IdentityStore keeps who may do what, and what they did. Its methods are those of Store in
// all else: safe for concurrent use, with the errors of this package.
//
// What takes an AuditFunc stores the record in the transaction of the change: both are there
// or neither is. A nil AuditFunc leaves the record out, for tests and for what is recorded
// elsewhere.
type IdentityStore interface {
	UserStore
	SessionStore
	TokenStore
	AuditStore
	SecretStore
}

// AuditFunc makes the record that follows prev, whose Seq is 0 before the first. It may be
// called again, when the transaction is.
type AuditFunc func(prev AuditRecord) AuditRecord

// RoleGuard looks at how many people hold each role over the whole system once the change is
// made, services and those who are disabled not counted, and refuses the change by an error.
// No other change of anybody's roles, or of who is disabled, happens meanwhile.
type RoleGuard func(holders map[Role]int) error

// UserStore keeps users, their roles, and codes of one use.
type UserStore interface {
	// AnyUser tells whether there is a user at all.
	AnyUser(ctx context.Context) (bool, error)
	User(ctx context.Context, id int64) (*User, error)
	UserByName(ctx context.Context, name string) (*User, error)
	// UserBySubject finds the user that an OpenID Connect issuer names so.
	UserBySubject(ctx context.Context, issuer, subject string) (*User, error)
	Users(ctx context.Context, afterName string, limit int) ([]User, error)

	// SaveUser inserts (Version 0) or updates a user; an update whose Version is not the
	// stored one is ErrConflict. An update changes title, e-mail, issuer, subject and whether
	// the user is disabled, nothing else; the name stays, and so does the kind. Disabling a
	// user, or another issuer or subject, ends the sessions. guard may be nil.
	SaveUser(ctx context.Context, u User, guard RoleGuard, audit AuditFunc) (*User, error)
	// SetPassword sets the encoded password, forgets failed logins and ends all sessions.
	// Tokens stay: revoke them too, if the user is no longer trusted.
	SetPassword(ctx context.Context, user int64, encoded string, mustChange bool, at int64, audit AuditFunc) error
	// RehashPassword replaces an encoded password by another encoding of the same, if it is
	// still there; the sessions go on. Where it is not, nothing happens.
	RehashPassword(ctx context.Context, user int64, old, fresh string) error
	// SetTOTP sets the sealed key of the second factor, or takes it away if it is empty, and
	// ends all sessions. step is the step of the code that proved it, which counts no more.
	SetTOTP(ctx context.Context, user int64, sealed []byte, step, at int64, audit AuditFunc) error

	// BeginLogin counts a login before anything about it is checked, so that any number of
	// guesses at once are counted as if one came after the other. decide sees the user as
	// stored and returns the count with this login in it, or the error by which it is refused
	// unseen; then nothing is stored. What it returns is the user as stored then.
	BeginLogin(ctx context.Context, user, at int64, decide func(u User) (failed int32, err error)) (*User, error)
	// EndLogin says that the login succeeded: nothing has failed since. step is that of the
	// second factor's code, 0 if there was none; ErrConflict if that step, or a later one, was
	// taken already. Disabled users are ErrForbidden.
	EndLogin(ctx context.Context, user, step, at int64) error

	// RoleBindings lists the roles of a user.
	RoleBindings(ctx context.Context, user int64) ([]RoleBinding, error)
	// RoleBindingsIn lists the bindings with one of the scopes, by (User, Role, Scope), after
	// the given one.
	RoleBindingsIn(ctx context.Context, scopes []string, after RoleBinding, limit int) ([]RoleBinding, error)
	// SetRoleBindings makes these all the roles of a user whose Version is still the given
	// one, else ErrConflict, and ends the user's sessions. It returns the new version. guard
	// may be nil.
	SetRoleBindings(ctx context.Context, user int64, version int32, roles []RoleBinding, at int64, guard RoleGuard, audit AuditFunc) (int32, error)

	// SaveCode stores a code that is good once.
	SaveCode(ctx context.Context, c Code) error
	// TakeCode ends the code with the id, purpose and hash and returns it; ErrNotFound if there
	// is none, or it is taken, or expired at the time. Of many at once one gets it.
	TakeCode(ctx context.Context, id int64, purpose CodePurpose, hash [32]byte, at int64) (*Code, error)
	// FirstUser takes the setup code and makes the first user with these roles (User is filled
	// in), all or nothing; every other setup code ends with it. ErrConflict if there is a user
	// already, ErrNotFound as TakeCode.
	FirstUser(ctx context.Context, code int64, hash [32]byte, u User, roles []RoleBinding, at int64, audit AuditFunc) (*User, error)
}

// SessionStore keeps sessions.
type SessionStore interface {
	// SaveSession stores a new session. ErrConflict if the user's Generation is no longer the
	// session's: the password or the roles were changed while the login went on. ErrForbidden
	// if the user is disabled.
	SaveSession(ctx context.Context, s Session, audit AuditFunc) error
	Session(ctx context.Context, id int64) (*Session, error)
	// Sessions lists a user's sessions, by id.
	Sessions(ctx context.Context, user int64) ([]Session, error)
	// TouchSession says that it was used; the time never moves back. One that is gone is
	// ErrNotFound.
	TouchSession(ctx context.Context, id, at int64) error
	// DeleteSession ends one session of the user; ErrNotFound if it is not there.
	DeleteSession(ctx context.Context, user, id int64, audit AuditFunc) error
	// DeleteSessions ends all sessions of the user, and logins that are under way.
	DeleteSessions(ctx context.Context, user, at int64, audit AuditFunc) error
	// DeleteExpired deletes sessions and codes that expired before the time, at most limit
	// rows of each, and returns how many went.
	DeleteExpired(ctx context.Context, before int64, limit int) (int64, error)
}

// TokenStore keeps the tokens of users.
type TokenStore interface {
	// SaveToken stores a new token.
	SaveToken(ctx context.Context, t Token, audit AuditFunc) error
	Token(ctx context.Context, id int64) (*Token, error)
	// Tokens lists the tokens of a user, 0 for everybody's, with ids above after, by id.
	Tokens(ctx context.Context, user, after int64, limit int) ([]Token, error)
	// TouchToken says that it was used; the time never moves back.
	TouchToken(ctx context.Context, id, at int64) error
	// RevokeToken ends it for good; one that is revoked stays as it is.
	RevokeToken(ctx context.Context, id, at int64, audit AuditFunc) error
}

// AuditQuery picks records; a zero field picks all. Records come newest first.
type AuditQuery struct {
	Before   int64 // with numbers below it
	Actor    int64
	App      int64
	Target   string
	Action   string
	From, To int64 // epoch ms, both included
	Limit    int
}

// AuditStore keeps the audit log. Records are added, and nothing changes or deletes them.
type AuditStore interface {
	// AppendAudit adds the record that build makes of the last one and returns it. Appends
	// come one after the other, on all servers, so that the chain never forks; a record that
	// does not follow is ErrInvalid. Callers at the same time share a commit.
	AppendAudit(ctx context.Context, build AuditFunc) (*AuditRecord, error)
	// AuditHead is the last record, ErrNotFound if there is none.
	AuditHead(ctx context.Context) (*AuditRecord, error)
	// AuditRecords reads what the query picks. Where it names neither actor, app nor target
	// it may have to look at every record in [From, To].
	AuditRecords(ctx context.Context, q AuditQuery) ([]AuditRecord, error)
	// AuditAfter reads the records after the number, in their order.
	AuditAfter(ctx context.Context, seq int64, limit int) ([]AuditRecord, error)
}

// SecretStore keeps secrets as they are sealed.
type SecretStore interface {
	// SaveSecret inserts (Version 0) or updates a secret; an update whose Version is not the
	// stored one is ErrConflict. It returns the secret with the new version.
	SaveSecret(ctx context.Context, s Secret, audit AuditFunc) (*Secret, error)
	Secret(ctx context.Context, app int64, name string) (*Secret, error)
	// Secrets lists the secrets of an app by name, without what is sealed.
	Secrets(ctx context.Context, app int64, afterName string, limit int) ([]Secret, error)
	// SecretsUnderOtherKeys reads secrets that are not wrapped with the key, to wrap them anew.
	SecretsUnderOtherKeys(ctx context.Context, keyID string, limit int) ([]Secret, error)
	// DeleteSecret deletes the secret, if it has that version still.
	DeleteSecret(ctx context.Context, app int64, name string, version int32, audit AuditFunc) error
}
