package api

import (
	"context"
	"iter"
	"net/http"
	"net/url"
)

// Me is who the caller is, and what it may do.
func (c *Client) Me(ctx context.Context) (*Me, error) {
	out := &Me{}
	_, err := c.get(ctx, "/me", nil, out)
	return out, err
}

// Users are all users, by name.
func (c *Client) Users(ctx context.Context) iter.Seq2[User, error] {
	return pages[User](ctx, c, "/users", large(), "after")
}

// User is one user.
func (c *Client) User(ctx context.Context, name string) (*User, error) {
	out := &User{}
	_, err := c.get(ctx, path("/users/%s", name), nil, out)
	return out, err
}

// CreateUser makes a user. A person without a password gets a one-time login code, shown this
// once.
func (c *Client) CreateUser(ctx context.Context, u NewUser) (*User, error) {
	out := &User{}
	_, err := c.do(ctx, &call{method: http.MethodPost, path: "/users", in: u, out: out, once: true})
	return out, err
}

// Roles are those that a user holds.
func (c *Client) Roles(ctx context.Context, user string) ([]RoleBinding, error) {
	var out SetRoles
	_, err := c.get(ctx, path("/users/%s/roles", user), nil, &out)
	return out.Roles, err
}

// SetRoles makes these all the roles of a user, and ends the user's sessions.
func (c *Client) SetRoles(ctx context.Context, user string, roles []RoleBinding) error {
	_, err := c.do(ctx, &call{method: http.MethodPut, path: path("/users/%s/roles", user), in: SetRoles{Roles: roles}})
	return err
}

// OwnTokens are the caller's.
func (c *Client) OwnTokens(ctx context.Context) iter.Seq2[Token, error] {
	return pages[Token](ctx, c, "/me/tokens", large(), "after")
}

// Tokens are all tokens.
func (c *Client) Tokens(ctx context.Context) iter.Seq2[Token, error] {
	return pages[Token](ctx, c, "/tokens", large(), "after")
}

// CreateToken makes a token of a user, whose secret is shown this once.
func (c *Client) CreateToken(ctx context.Context, user string, t NewToken) (*Token, error) {
	out := &Token{}
	_, err := c.do(ctx, &call{method: http.MethodPost, path: path("/users/%s/tokens", user), in: t, out: out, once: true})
	return out, err
}

// RevokeToken revokes a token of anybody.
func (c *Client) RevokeToken(ctx context.Context, id int64) error {
	_, err := c.do(ctx, &call{method: http.MethodDelete, path: path("/tokens/%s", itoa(id))})
	return err
}

// Audit is the audit log, newest first; target and action pick records if they are not empty.
func (c *Client) Audit(ctx context.Context, target, action string) iter.Seq2[AuditRecord, error] {
	q := large()
	if target != "" {
		q.Set("target", target)
	}
	if action != "" {
		q.Set("action", action)
	}
	return pages[AuditRecord](ctx, c, "/audit", q, "before")
}

// VerifyAudit checks the chain of the audit log from a record on; 0 is all of it.
func (c *Client) VerifyAudit(ctx context.Context, from int64) (*AuditCheck, error) {
	out, q := &AuditCheck{}, url.Values{}
	number(q, "from", from)
	_, err := c.get(ctx, "/audit/verify", q, out)
	return out, err
}
