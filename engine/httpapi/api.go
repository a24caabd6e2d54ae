package httpapi

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/access"
	"github.com/fanjet/fanjet/engine/server"
)

// Store is what the API reads and writes beside the server.
type Store interface {
	engine.Store
	engine.IdentityStore
}

// Config of an API.
type Config struct {
	// Server does the work. Required.
	Server *server.Server
	// Store is the server's. Required.
	Store Store
	// Policy is who may what.
	Policy access.Policy
	// Passwords, Lockout, Sessions and Tokens are the rules of logging in; the zero values are
	// the stock ones.
	Passwords access.PasswordRules
	Lockout   access.Lockout
	Sessions  access.SessionRules
	Tokens    access.TokenRules
	// Hash is what a password costs to check; default access.DefaultHash. Less is for tests.
	Hash access.HashParams
	// Keys seal secrets and second factors; without them both are refused.
	Keys *access.Keyring
	// Insecure says that people come over plain HTTP: cookies are not marked Secure. For a
	// server on the machine's own address only.
	Insecure bool
	// Proxied says that a proxy stands before the API and nobody else reaches it: the caller's
	// address is the last of X-Forwarded-For.
	Proxied bool
	// Origins are those of the console, such as https://jobs.example.com, where a proxy changes
	// the Host that browsers send; default the own.
	Origins []string
	// BodyLimit bounds a request's body, bytes; default 9 MiB, a definition and its envelope.
	BodyLimit int64
	// GuessBurst and GuessEvery bound logins and setups from one address: so many at once, then
	// one so often. Defaults 20 and 3 s. Behind a proxy set Proxied, or all are one address.
	GuessBurst int
	GuessEvery time.Duration
	// Live bounds streams of events.
	Live Live
	// Version is shown.
	Version string
	// Log defaults to slog.Default.
	Log *slog.Logger
}

const bodyLimit = 9 << 20

// API is the handler of everything under /api: the routes under /api/v1, and a page about them. Safe for concurrent use.
type API struct {
	cfg   Config
	mux   *http.ServeMux
	huma  huma.API
	err   []error // routes that may not be
	perms map[string]access.Permission
	names names
	doc   []byte // the OpenAPI document
	tags  []browsedTag

	guesses   *limiter
	denials   *limiter
	strangers *strangers
	answers   *answers
	nobody    string        // an encoded password that stands for those who have none
	hashes    chan struct{} // bounds the hashes of passwords at a time: each takes 19 MiB
}

// New makes the API. It fails if a route declares no permission, or one that does not exist.
func New(c Config) (*API, error) {
	if c.Server == nil || c.Store == nil {
		return nil, fmt.Errorf("the API needs a server and its store: %w", engine.ErrInvalid)
	}
	if c.BodyLimit <= 0 {
		c.BodyLimit = bodyLimit
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.GuessBurst <= 0 {
		c.GuessBurst = 20
	}
	if c.GuessEvery <= 0 {
		c.GuessEvery = 3 * time.Second
	}
	if c.Hash == (access.HashParams{}) {
		c.Hash = access.DefaultHash
	}
	a := &API{
		nobody: access.HashPassword("", [access.SaltSize]byte{}, c.Hash),
		cfg:    c, mux: http.NewServeMux(), perms: map[string]access.Permission{},
		guesses: newLimiter(c.GuessBurst, c.GuessEvery, 10_000), denials: newLimiter(10, 6*time.Second, 10_000),
		strangers: newStrangers(c.Lockout), answers: newAnswers(), hashes: make(chan struct{}, 4),
	}
	hc := huma.DefaultConfig("Fanjet", "1")
	hc.Info.Description = "Jobs, workflows and what runs of them. Times are epoch milliseconds, ids are strings."
	hc.OpenAPIPath, hc.DocsPath, hc.SchemasPath = "", "", ""
	hc.CreateHooks = nil // no $schema in bodies
	hc.RejectUnknownQueryParameters = true
	hc.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"token":   {Type: "http", Scheme: "bearer", Description: "An API token, fj_…"},
		"session": {Type: "apiKey", In: "cookie", Name: cookieName(c.Insecure)},
	}
	a.huma = humago.New(a.mux, hc)
	a.routes()
	if len(a.err) > 0 {
		return nil, errors.Join(a.err...)
	}
	var err error
	a.tags = a.browsedTags()
	a.doc, err = a.OpenAPI()
	return a, err
}

// ServeHTTP answers one request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.guard(a.mux).ServeHTTP(w, r) }

// Operation is a route and what it takes to use it.
type Operation struct {
	ID         string
	Method     string
	Path       string
	Permission access.Permission
}

// Operations lists all routes, by path and method: for the test that walks them.
func (a *API) Operations() []Operation {
	var out []Operation
	for path, item := range a.huma.OpenAPI().Paths {
		for method, op := range map[string]*huma.Operation{
			http.MethodGet: item.Get, http.MethodPut: item.Put, http.MethodPost: item.Post,
			http.MethodDelete: item.Delete, http.MethodPatch: item.Patch,
		} {
			if op != nil {
				out = append(out, Operation{ID: op.OperationID, Method: method, Path: path, Permission: a.perms[op.OperationID]})
			}
		}
	}
	slices.SortFunc(out, func(x, y Operation) int {
		if x.Path != y.Path {
			if x.Path < y.Path {
				return -1
			}
			return 1
		}
		if x.Method < y.Method {
			return -1
		}
		return 1
	})
	return out
}

// OpenAPI is the document of the routes, JSON.
func (a *API) OpenAPI() ([]byte, error) {
	b, err := a.huma.OpenAPI().MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encode the OpenAPI document: %w", err)
	}
	return b, nil
}

func (a *API) now() int64 { return a.cfg.Server.Now() }

// clock is this machine's, for what only this server counts.
func (a *API) clock() time.Time { return time.Now() }

// random is what credentials are made of.
func random() (b [access.SecretSize]byte) {
	_, _ = rand.Read(b[:]) // never fails, since Go 1.24
	return b
}
