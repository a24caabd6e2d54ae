package httpapi

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/access"
)

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
		q := &request{id: hex.EncodeToString(b[:]), from: a.address(r), agent: engine.CutText(r.UserAgent(), engine.MaxAgent)}
		var err error
		ctx := context.WithValue(r.Context(), ctxKey{}, q)
		h := w.Header()
		h.Set("X-Request-Id", q.id)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Cache-Control", "no-store")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		if !a.cfg.Insecure {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		r.Body = http.MaxBytesReader(w, r.Body, a.cfg.BodyLimit)
		byToken := r.Header.Get("Authorization") != ""
		if !byToken && !a.sameOrigin(r) {
			a.write(ctx, w, errForeign) // a login by another site's page would be as bad
			return
		}
		q.principal, q.byCookie, err = a.authenticate(ctx, r)
		if err != nil && (byToken || !errors.Is(err, access.ErrUnauthenticated)) {
			a.write(ctx, w, err) // a token that is wrong is never taken for none
			return
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// address is where a request comes from.
func (a *API) address(r *http.Request) string {
	if lines := r.Header.Values("X-Forwarded-For"); a.cfg.Proxied && len(lines) > 0 {
		// What stands before the last was written by the caller, who may write anything.
		last := lines[len(lines)-1]
		if ip, err := netip.ParseAddr(strings.TrimSpace(last[strings.LastIndex(last, ",")+1:])); err == nil {
			return ip.String()
		}
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
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
// so (Fetch Metadata), and older ones name the origin. What says neither, and brings a cookie,
// is no browser of today, and is refused too.
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
		return len(r.CookiesNamed(cookieName(a.cfg.Insecure))) == 0
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
	if err != nil || c.Kind() != access.KindToken {
		return p, &plainError{"this is no token of ours", access.ErrUnauthenticated}
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
	if u.Password != "" && a.cfg.Passwords.Expired(u.PasswordAt, now) {
		u.MustChange = true
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
