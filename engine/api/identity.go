package api

// Setup makes the first user of an installation, with the code that its server has printed.
type Setup struct {
	Code     string `json:"code"`
	Name     string `json:"name"`
	Title    string `json:"title,omitempty"`
	Password string `json:"password"`
}

// SetupState tells whether an installation has no user yet.
type SetupState struct {
	Needed bool `json:"needed"`
}

// Login is a login by password. Code is that of the second factor, where the user has one.
type Login struct {
	Name     string `json:"name"`
	Password string `json:"password"`
	Code     string `json:"code,omitempty"`
}

// CodeLogin is a login by a one-time code, fjlogin_….
type CodeLogin struct {
	Code string `json:"code"`
}

// RoleBinding is a role that a user holds in a scope: an app, a namespace of apps such as
// billing-*, or * for all of them; empty for a role over the whole system.
type RoleBinding struct {
	Role  string `json:"role"`
	Scope string `json:"scope,omitempty"`
	Since int64  `json:"since,omitempty"` // epoch ms
}

// Me is who the caller is, and what it may do.
type Me struct {
	User         int64         `json:"user,string"`
	Name         string        `json:"name"`
	Title        string        `json:"title,omitempty"`
	Email        string        `json:"email,omitempty"`
	ByToken      bool          `json:"by_token,omitempty"`
	MustChange   bool          `json:"must_change,omitempty"` // the password, before anything else
	SecondFactor bool          `json:"second_factor"`         // set up
	Roles        []RoleBinding `json:"roles"`
	// System are the permissions over the whole system; Apps those on apps, each with the
	// scopes that it is had in.
	System []string            `json:"system"`
	Apps   map[string][]string `json:"apps"`
}

// ChangePassword sets the caller's own password. Old is left out by a user who has none.
type ChangePassword struct {
	Old  string `json:"old,omitempty"`
	Code string `json:"code,omitempty"` // of the second factor, where there is one
	New  string `json:"new"`
}

// Proof shows once more who the caller is: the password, and the code of the second factor
// where there is one.
type Proof struct {
	Password string `json:"password,omitempty"`
	Code     string `json:"code,omitempty"`
}

// Enrolment is a second factor that waits to be confirmed.
type Enrolment struct {
	URI   string `json:"uri"`   // otpauth://…, for an authenticator app
	State string `json:"state"` // goes back with the code; good for ten minutes
}

// ConfirmEnrolment proves that the authenticator app has the key.
type ConfirmEnrolment struct {
	State string `json:"state"`
	Code  string `json:"code"`
}

// Session is a login that goes on.
type Session struct {
	ID        int64  `json:"id,string"`
	Current   bool   `json:"current,omitempty"` // the one that asks
	From      string `json:"from,omitempty"`
	Agent     string `json:"agent,omitempty"`
	CreatedAt int64  `json:"created_at"`
	SeenAt    int64  `json:"seen_at"`
	ExpiresAt int64  `json:"expires_at"`
}

// Token is a token as it is listed; its secret is shown once, when it is made.
type Token struct {
	ID          int64    `json:"id,string"`
	User        int64    `json:"user,string"`
	Name        string   `json:"name"`
	Permissions []string `json:"permissions"`
	Apps        []string `json:"apps"`
	CreatedAt   int64    `json:"created_at"`
	ExpiresAt   int64    `json:"expires_at"`
	UsedAt      int64    `json:"used_at,omitempty"`
	RevokedAt   int64    `json:"revoked_at,omitempty"`
	Secret      string   `json:"secret,omitempty"` // of a new one only
}

// NewToken is a token to be made.
type NewToken struct {
	Name        string   `json:"name"`        // what it is for
	Permissions []string `json:"permissions"` // jobs.read, jobs.*, or * for all that its user may
	Apps        []string `json:"apps,omitempty"`
	Days        int      `json:"days,omitempty"` // that it is good for; default 90
}

// User is somebody who may do something.
type User struct {
	ID           int64  `json:"id,string"`
	Name         string `json:"name"`
	Title        string `json:"title,omitempty"`
	Email        string `json:"email,omitempty"`
	Kind         string `json:"kind"` // person or service
	Disabled     bool   `json:"disabled,omitempty"`
	MustChange   bool   `json:"must_change,omitempty"`
	SecondFactor bool   `json:"second_factor,omitempty"`
	LoginAt      int64  `json:"login_at,omitempty"`
	Version      int32  `json:"version"`
	CreatedAt    int64  `json:"created_at"`
	UpdatedAt    int64  `json:"updated_at"`
	Code         string `json:"code,omitempty"` // one-time login code of a new or reset user, shown once
}

// NewUser is a user to be made. A person without a password gets a one-time login code.
type NewUser struct {
	Name     string `json:"name"`
	Title    string `json:"title,omitempty"`
	Email    string `json:"email,omitempty"`
	Service  bool   `json:"service,omitempty"` // has tokens only, and never logs in
	Password string `json:"password,omitempty"`
}

// ChangeUser is what of a user may be changed.
type ChangeUser struct {
	Title    string `json:"title,omitempty"`
	Email    string `json:"email,omitempty"`
	Disabled bool   `json:"disabled,omitempty"`
}

// SetRoles makes these all the roles of somebody.
type SetRoles struct {
	Roles []RoleBinding `json:"roles"`
}

// Member is a user with a role that reaches an app.
type Member struct {
	User  int64         `json:"user,string"`
	Name  string        `json:"name"`
	Title string        `json:"title,omitempty"`
	Roles []RoleBinding `json:"roles"` // of the scopes that the app is in
}

// AuditRecord is a line of the audit log. Hash holds everything before it; see the docs of
// engine/access for what it is made of.
type AuditRecord struct {
	Seq        int64  `json:"seq,string"`
	At         int64  `json:"at"`
	ActorKind  string `json:"actor_kind"`
	Actor      int64  `json:"actor,string,omitempty"`
	ActorName  string `json:"actor_name,omitempty"`
	Credential int64  `json:"credential,string,omitempty"` // session or token
	Action     string `json:"action"`
	App        int64  `json:"app,string,omitempty"`
	Target     string `json:"target,omitempty"`
	Outcome    string `json:"outcome"`
	From       string `json:"from,omitempty"`
	Request    string `json:"request,omitempty"`
	Before     string `json:"before,omitempty"` // JSON, secrets masked; a text, so that its bytes stay
	After      string `json:"after,omitempty"`
	Prev       string `json:"prev"` // hex
	Hash       string `json:"hash"`
}

// AuditCheck is what a verification of the audit log found.
type AuditCheck struct {
	OK   bool   `json:"ok"`
	From int64  `json:"from,string"` // the first record that was checked
	To   int64  `json:"to,string"`   // the last one that is good
	Hash string `json:"hash"`        // of it; keep it elsewhere, and the log cannot be rewritten up to there
	More bool   `json:"more"`        // there are records behind it that were not looked at
	// Broken is the first record that cannot be trusted, and What says why.
	Broken int64  `json:"broken,string,omitempty"`
	What   string `json:"what,omitempty"`
}
