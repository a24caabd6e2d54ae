package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/fanjet/fanjet/engine/api"
)

type userCmd struct {
	List    userListCmd    `cmd:"" help:"List all users."`
	Add     userAddCmd     `cmd:"" help:"Make a user; a person gets a one-time login code."`
	Disable userDisableCmd `cmd:"" help:"Disable a user: its sessions end, its tokens are good no more."`
	Enable  userEnableCmd  `cmd:"" help:"Let a user in again."`
	Reset   userResetCmd   `cmd:"" help:"Take away what a user logs in with, and make a one-time login code."`
}

type userListCmd struct {
	siteFlags
	outputFlag
}

// page is a page of a list of the API.
type page[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next"`
}

// all reads all pages of a list.
func all[T any](ctx context.Context, s *site, path string) ([]T, error) {
	out := []T{}
	for after := ""; ; {
		var p page[T]
		if err := s.ask(ctx, http.MethodGet, path+"?limit=500&after="+url.QueryEscape(after), nil, &p); err != nil {
			return nil, err
		}
		out = append(out, p.Items...)
		if after = p.Next; after == "" {
			return out, nil
		}
	}
}

// Run lists users.
func (c *userListCmd) Run(con *console) error {
	s, err := c.site()
	if err != nil {
		return err
	}
	sig := catchInterrupts()
	defer sig.forget()
	users, err := all[api.User](sig.first, s, "/users")
	if err != nil {
		return err
	}
	return c.write(con.out, users, func(w io.Writer) {
		for _, u := range users {
			state := "active"
			if u.Disabled {
				state = "disabled"
			}
			fmt.Fprintf(w, "%-24s  %-8s  %-8s  last login %s\n", u.Name, u.Kind, state, utc(u.LoginAt))
		}
	})
}

type userAddCmd struct {
	Name    string   `arg:"" help:"What the user logs in with."`
	Title   string   `help:"The user's name, for people."`
	Email   string   `help:"The user's e-mail address."`
	Service bool     `help:"A program: it has tokens, and never logs in."`
	Role    []string `placeholder:"ROLE[@SCOPE]" help:"A role, such as system-admin, viewer@shop, editor@billing-* or operator@*; may be repeated."`
	personFlags
	outputFlag
}

// Run makes a user with its roles.
func (c *userAddCmd) Run(con *console) error {
	roles := make([]api.RoleBinding, 0, len(c.Role))
	for _, text := range c.Role {
		role, scope, _ := strings.Cut(text, "@")
		roles = append(roles, api.RoleBinding{Role: role, Scope: scope})
	}
	return c.with(con, func(ctx context.Context, s *site) error {
		var u api.User
		if err := s.ask(ctx, http.MethodPost, "/users", api.NewUser{Name: c.Name, Title: c.Title, Email: c.Email, Service: c.Service}, &u); err != nil {
			return fmt.Errorf("make user %s: %w", c.Name, err)
		}
		if len(roles) > 0 {
			if err := s.ask(ctx, http.MethodPut, "/users/"+url.PathEscape(c.Name)+"/roles", api.SetRoles{Roles: roles}, nil); err != nil {
				return fmt.Errorf("user %s is made, but has no roles: %w", c.Name, err)
			}
		}
		return c.write(con.out, u, func(w io.Writer) { tellCode(w, &u) })
	})
}

// tellCode says how somebody logs in for the first time.
func tellCode(w io.Writer, u *api.User) {
	fmt.Fprintf(w, "user %s, a %s\n", u.Name, u.Kind)
	if u.Code != "" {
		fmt.Fprintf(w, "one-time login code, good for three days: %s\n", u.Code)
	}
}

type userDisableCmd struct {
	Name string `arg:"" help:"The user."`
	personFlags
}

// Run disables a user.
func (c *userDisableCmd) Run(con *console) error {
	return setDisabled(con, &c.personFlags, c.Name, true)
}

type userEnableCmd struct {
	Name string `arg:"" help:"The user."`
	personFlags
}

// Run enables a user.
func (c *userEnableCmd) Run(con *console) error {
	return setDisabled(con, &c.personFlags, c.Name, false)
}

func setDisabled(con *console, f *personFlags, name string, disabled bool) error {
	return f.with(con, func(ctx context.Context, s *site) error {
		path := "/users/" + url.PathEscape(name)
		var u api.User
		if err := s.ask(ctx, http.MethodGet, path, nil, &u); err != nil {
			return err
		}
		if err := s.ask(ctx, http.MethodPut, path, api.ChangeUser{Title: u.Title, Email: u.Email, Disabled: disabled}, nil); err != nil {
			return err
		}
		fmt.Fprintf(con.out, "user %s is %s\n", name, map[bool]string{true: "disabled", false: "active"}[disabled])
		return nil
	})
}

type userResetCmd struct {
	Name string `arg:"" help:"The user."`
	personFlags
	outputFlag
}

// Run resets a user.
func (c *userResetCmd) Run(con *console) error {
	return c.with(con, func(ctx context.Context, s *site) error {
		var u api.User
		if err := s.ask(ctx, http.MethodPost, "/users/"+url.PathEscape(c.Name)+"/reset", nil, &u); err != nil {
			return err
		}
		return c.write(con.out, u, func(w io.Writer) { tellCode(w, &u) })
	})
}
