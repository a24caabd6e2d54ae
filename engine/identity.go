package engine

import "fmt"

// Bounds of what tells who somebody is, in bytes.
const (
	MaxUserName  = 128
	MaxScope     = MaxName + 1 // an app's name or the stem of one, and the star
	MaxAgent     = 255         // an address, or what a browser calls itself
	MaxSecret    = 64 << 10    // the value of a secret
	MaxAuditBody = 64 << 10    // what was before, or is after
	// MaxBindings is how many roles one user may hold, each in its scope.
	MaxBindings = 256
)

// Role is a set of permissions; which, says the table in engine/access.
type Role string

// The roles. The first four are held in a scope of apps, the others over the whole system.
const (
	RoleViewer        Role = "viewer"         // sees
	RoleOperator      Role = "operator"       // sees, and runs what is there
	RoleEditor        Role = "editor"         // and changes what is there
	RoleAppAdmin      Role = "app-admin"      // and says who may, within the app
	RoleSystemAdmin   Role = "system-admin"   // servers, settings, apps
	RoleSecurityAdmin Role = "security-admin" // users, roles, tokens
	RoleAuditor       Role = "auditor"        // reads the audit log
)

// UserKind says whether somebody can log in.
type UserKind string

// The kinds of users.
const (
	UserPerson  UserKind = "person"
	UserService UserKind = "service" // has tokens, and neither password nor sessions
)

// User is somebody who may do something. Users are disabled and never deleted, so that the
// audit log goes on naming them.
type User struct {
	ID      int64
	Name    string // unique, what one logs in with; see CheckUserName
	Title   string
	Email   string
	Kind    UserKind
	Issuer  string // OpenID Connect: who vouches; empty if nobody does
	Subject string // and how the issuer names the user; unique with it

	Password   string // as engine/access encodes it; empty: no login by password
	PasswordAt int64  // epoch ms
	MustChange bool   // may do nothing else before the password is changed
	TOTP       []byte // the sealed key of the second factor; empty: none
	TOTPStep   int64  // the last step whose code was taken; no code counts twice

	Failed   int32 // logins begun since the last that succeeded, see UserStore.BeginLogin
	FailedAt int64 // epoch ms of the last of them
	LoginAt  int64 // epoch ms of the last that succeeded

	Disabled   bool
	Generation int64 // grows with each change that ends the sessions
	Version    int32
	CreatedAt  int64
	UpdatedAt  int64
}

// RoleBinding is a role that a user holds in a scope. The scope of a role over the whole
// system is empty; that of the others is an app ("billing"), a namespace of apps
// ("billing-*": all whose names begin so) or all of them ("*").
type RoleBinding struct {
	User  int64
	Role  Role
	Scope string
	At    int64 // epoch ms
}

// Session is a login that goes on. Its secret is with the browser, only the hash is stored.
type Session struct {
	ID         int64
	User       int64
	Hash       [32]byte
	Generation int64  // of the user when it began; another one ends it
	From       string // the address
	Agent      string // what the browser calls itself
	CreatedAt  int64  // epoch ms
	SeenAt     int64
	ExpiresAt  int64
}

// Token lets a program do some of what its user may do: what is in Permissions, in the
// scopes of Apps. Its secret is shown once, only the hash is stored.
type Token struct {
	ID          int64
	User        int64
	Name        string // for people
	Hash        [32]byte
	Permissions []string
	Apps        []string
	CreatedAt   int64 // epoch ms
	CreatedBy   int64 // a user
	ExpiresAt   int64
	UsedAt      int64 // about when it was used last, 0 never
	RevokedAt   int64 // 0 if it is not
}

// CodePurpose is what a one-time code is for.
type CodePurpose string

// The purposes.
const (
	CodeSetup CodePurpose = "setup" // to make the first user
	CodeLogin CodePurpose = "login" // to log in once without a password
)

// Code is good for one use. Only its hash is stored.
type Code struct {
	ID        int64
	Purpose   CodePurpose
	User      int64 // 0 for setup
	Hash      [32]byte
	CreatedAt int64 // epoch ms
	ExpiresAt int64
}

// ActorKind is what sort of caller did something.
type ActorKind string

// The kinds of actors.
const (
	ActorNobody ActorKind = "nobody" // without credentials: a login that failed
	ActorUser   ActorKind = "user"   // in a session
	ActorToken  ActorKind = "token"
	ActorSystem ActorKind = "system" // a server by itself, or its command line
)

// Outcome is how what was tried ended.
type Outcome string

// The outcomes.
const (
	OutcomeDone   Outcome = "done"
	OutcomeDenied Outcome = "denied" // the caller may not
	OutcomeFailed Outcome = "failed"
)

// AuditRecord is one line of the audit log. Records are numbered from 1 without a gap, and
// each holds the hash of the one before; engine/access computes and checks them.
type AuditRecord struct {
	Seq        int64
	At         int64 // epoch ms
	ActorKind  ActorKind
	Actor      int64  // the user, 0 if none
	Credential int64  // the session or token, 0 if none
	ActorName  string // the user's name then
	Action     string // a permission, or a word as "login"
	App        int64  // 0: none
	Target     string // noun:id, as "job:17"
	Outcome    Outcome
	From       string // the address
	Request    string // the id of the request, as in the server's log
	Before     []byte // JSON with secrets masked; nil: nothing was
	After      []byte // JSON with secrets masked; nil: nothing is
	Prev       [32]byte
	Hash       [32]byte
}

// Secret is a named value for the processors of an app, encrypted. The app and the name are
// part of what the encryption proves, so that one row cannot stand in for another.
type Secret struct {
	App       int64
	Name      string // unique in the app
	Version   int32
	KeyID     string // of the key that its own key is wrapped with
	Sealed    []byte // as engine/access seals it
	UpdatedBy int64
	CreatedAt int64
	UpdatedAt int64
}

// CheckUserName refuses what does not name a user: 1 to 128 of a-z, 0-9, and . _ @ + -,
// starting with a letter or digit. An e-mail address in lower case is one.
func CheckUserName(s string) error {
	ok := len(s) > 0 && len(s) <= MaxUserName
	for i := 0; ok && i < len(s); i++ {
		c := s[i]
		alnum := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		ok = alnum || i > 0 && (c == '.' || c == '_' || c == '@' || c == '+' || c == '-')
	}
	if !ok {
		return fmt.Errorf("user name %q: 1 to %d of a-z, 0-9, and . _ @ + -, starting with a letter or digit: %w", CutText(s, MaxUserName), MaxUserName, ErrInvalid)
	}
	return nil
}
