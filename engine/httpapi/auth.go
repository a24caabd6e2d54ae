package httpapi

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/access"
)

type ctxKey int

const (
	keyPrincipal ctxKey = iota
	keyRequest
	keyFrom
)

// principalOf is who asks; nobody if no credentials came.
func principalOf(ctx context.Context) access.Principal {
	p, _ := ctx.Value(keyPrincipal).(access.Principal)
	return p
}

// requestOf is the id of the request, as in the log.
func requestOf(ctx context.Context) string {
	id, _ := ctx.Value(keyRequest).(string)
	return id
}

// fromOf is the address the request came from.
func fromOf(ctx context.Context) string {
	from, _ := ctx.Value(keyFrom).(string)
	return from
}

// cookieName has the prefix that makes browsers take it only over TLS, from this very host
// (RFC 6265bis, 4.1.3.2).
func cookieName(insecure bool) string {
	if insecure {
		return "fanjet"
	}
	return "__Host-fanjet"
}

// guard stands before every route: it names the request, bounds it, finds out who asks, and
// refuses what a foreign page may have sent.
func (a *API) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails, since Go 1.24
		id := hex.EncodeToString(b[:])
		from, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			from = r.RemoteAddr
		}
		ctx := context.WithValue(context.WithValue(r.Context(), keyRequest, id), keyFrom, from)
		h := w.Header()
		h.Set("X-Request-Id", id)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		r.Body = http.MaxBytesReader(w, r.Body, a.cfg.BodyLimit)
		p, byCookie, err := a.authenticate(ctx, r)
		if err != nil && !errors.Is(err, access.ErrUnauthenticated) {
			a.write(ctx, w, err)
			return
		}
		if err != nil && !byCookie {
			a.write(ctx, w, err) // a token that is wrong is never taken for none
			return
		}
		if byCookie && !a.sameOrigin(r) {
			a.write(ctx, w, errForeign)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, keyPrincipal, p)))
	})
}

var errForeign = forbidden("this request came from another site's page: use the console's own, or a token")

func forbidden(text string) error { return &plainError{text, engine.ErrForbidden} }

// plainError is a text of its own that is one of the known errors.
type plainError struct {
	text string
	is   error
}

func (e *plainError) Error() string { return e.text }
func (e *plainError) Unwrap() error { return e.is }

// sameOrigin refuses what changes something and comes from a page of another site: browsers say
// so (Fetch Metadata), and older ones name the origin.
func (a *API) sameOrigin(r *http.Request) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions {
		return true
	}
	origin := r.Header.Get("Origin")
	if slices.Contains(a.cfg.Origins, origin) && origin != "" {
		return true
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		return site == "same-origin" || site == "none"
	}
	if origin == "" {
		return false // a cookie without a word of where from: no browser of today
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host == r.Host
}

// authenticate finds out who asks: by a token, else by the session of a cookie. byCookie says
// that the latter was tried.
func (a *API) authenticate(ctx context.Context, r *http.Request) (p access.Principal, byCookie bool, err error) {
	if text := r.Header.Get("Authorization"); text != "" {
		kind, token, _ := strings.Cut(text, " ")
		if !strings.EqualFold(kind, "Bearer") {
			return p, false, &plainError{"the Authorization header must be: Bearer fj_…", access.ErrUnauthenticated}
		}
		p, err = a.byToken(ctx, strings.TrimSpace(token))
		return p, false, err
	}
	for _, cookie := range r.CookiesNamed(cookieName(a.cfg.Insecure)) {
		p, err = a.bySession(ctx, cookie.Value)
		return p, true, err
	}
	return p, false, nil // nobody: what is public is open to them
}

func (a *API) byToken(ctx context.Context, text string) (p access.Principal, err error) {
	c, err := access.ParseCredential(text)
	if err != nil {
		return p, err
	}
	t, err := a.cfg.Store.Token(ctx, c.ID())
	if err != nil {
		return p, unknown(err, "this is no token of ours")
	}
	u, err := a.cfg.Store.User(ctx, t.User)
	if err != nil {
		return p, unknown(err, "this is no token of ours")
	}
	now := a.now()
	if err := access.CheckToken(c, t, u, now); err != nil {
		return p, err
	}
	roles, err := a.cfg.Store.RoleBindings(ctx, u.ID)
	if err != nil {
		return p, err
	}
	if now-t.UsedAt > time.Minute.Milliseconds() {
		_ = a.cfg.Store.TouchToken(ctx, t.ID, now) // about when; a missed one does no harm
	}
	return access.OfToken(t, u, roles), nil
}

func (a *API) bySession(ctx context.Context, text string) (p access.Principal, err error) {
	c, err := access.ParseCredential(text)
	if err != nil {
		return p, err
	}
	s, err := a.cfg.Store.Session(ctx, c.ID())
	if err != nil {
		return p, unknown(err, "the session is over: log in again")
	}
	u, err := a.cfg.Store.User(ctx, s.User)
	if err != nil {
		return p, unknown(err, "the session is over: log in again")
	}
	now := a.now()
	if err := a.cfg.Sessions.CheckSession(c, s, u, now); err != nil {
		return p, err
	}
	roles, err := a.cfg.Store.RoleBindings(ctx, u.ID)
	if err != nil {
		return p, err
	}
	if now-s.SeenAt > a.cfg.Sessions.TouchAfter().Milliseconds() {
		_ = a.cfg.Store.TouchSession(ctx, s.ID, now)
	}
	return access.OfSession(s, u, roles), nil
}

// unknown keeps a caller from learning what ids there are.
func unknown(err error, text string) error {
	if errors.Is(err, engine.ErrNotFound) {
		return &plainError{text, access.ErrUnauthenticated}
	}
	return err
}

// write ends a request before its route.
func (a *API) write(ctx context.Context, w http.ResponseWriter, err error) {
	writeProblem(w, a.problem(ctx, err))
}

// refused records what the caller may not do, and says so.
func (a *API) refused(ctx context.Context, perm access.Permission, app string, err error) error {
	p := principalOf(ctx)
	if p.Known() {
		a.audit(ctx, string(perm), app, engine.OutcomeDenied)
	}
	return a.problem(ctx, err)
}

// audit records something that is stored nowhere else. The log has what the audit log has not.
func (a *API) audit(ctx context.Context, action, target string, outcome engine.Outcome) {
	p := principalOf(ctx)
	r := engine.AuditRecord{At: a.now(), Action: action, Target: target, Outcome: outcome, From: fromOf(ctx), Request: requestOf(ctx)}
	p.Actor(&r)
	if _, err := a.cfg.Store.AppendAudit(ctx, access.Chain(r)); err != nil {
		a.cfg.Log.ErrorContext(ctx, "a record of the audit log was lost", "action", action, "target", target, "outcome", outcome, "actor", r.ActorName, "err", err)
	}
}
