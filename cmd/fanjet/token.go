package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/fanjet/fanjet/engine/api"
)

type tokenCmd struct {
	List   tokenListCmd   `cmd:"" help:"List your tokens."`
	Create tokenCreateCmd `cmd:"" help:"Make a token; its secret is shown this once."`
	Revoke tokenRevokeCmd `cmd:"" help:"Revoke one of your tokens."`
}

type tokenListCmd struct {
	siteFlags
	outputFlag
}

// Run lists the caller's tokens.
func (c *tokenListCmd) Run(con *console) error {
	s, err := c.site()
	if err != nil {
		return err
	}
	sig := catchInterrupts()
	defer sig.forget()
	tokens, err := all[api.Token](sig.first, s, "/me/tokens")
	if err != nil {
		return err
	}
	return c.write(con.out, tokens, func(w io.Writer) {
		for _, t := range tokens {
			state := "expires " + utc(t.ExpiresAt)
			if t.RevokedAt != 0 {
				state = "revoked " + utc(t.RevokedAt)
			}
			fmt.Fprintf(w, "%d  %-24s  %s  used %s  may %s in %s\n", t.ID, t.Name, state, utc(t.UsedAt), strings.Join(t.Permissions, ","), strings.Join(t.Apps, ","))
		}
	})
}

type tokenCreateCmd struct {
	Name  string   `arg:"" help:"What the token is for."`
	Allow []string `required:"" placeholder:"PERMISSION" help:"What it may: a permission such as jobs.read, jobs.* or *; may be repeated."`
	App   []string `placeholder:"SCOPE" help:"In which apps: a name, billing-* or *; may be repeated."`
	Days  int      `default:"90" help:"How long it is good for."`
	personFlags
	outputFlag
}

// Run makes a token of the caller.
func (c *tokenCreateCmd) Run(con *console) error {
	return c.with(con, func(ctx context.Context, s *site) error {
		var t api.Token
		if err := s.ask(ctx, http.MethodPost, "/me/tokens", api.NewToken{Name: c.Name, Permissions: c.Allow, Apps: c.App, Days: c.Days}, &t); err != nil {
			return err
		}
		return c.write(con.out, t, func(w io.Writer) { fmt.Fprintln(w, t.Secret) })
	})
}

type tokenRevokeCmd struct {
	ID int64 `arg:"" help:"The token's number, as listed."`
	personFlags
}

// Run revokes a token of the caller.
func (c *tokenRevokeCmd) Run(con *console) error {
	return c.with(con, func(ctx context.Context, s *site) error {
		if err := s.ask(ctx, http.MethodDelete, "/me/tokens/"+strconv.FormatInt(c.ID, 10), nil, nil); err != nil {
			return err
		}
		fmt.Fprintf(con.out, "token %d is revoked\n", c.ID)
		return nil
	})
}
