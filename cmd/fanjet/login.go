package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"

	"github.com/fanjet/fanjet/engine/api"
)

type setupCmd struct {
	Server string `env:"FANJET_SERVER" default:"http://127.0.0.1:7780" placeholder:"URL" help:"The server's API; default ${default}."`
	Code   string `required:"" placeholder:"fjsetup_…" help:"The code that the server has printed."`
	Name   string `required:"" placeholder:"NAME" help:"What you will log in with."`
	Title  string `help:"Your name, for people."`

	in io.Reader
}

// Run makes the first user of an installation.
func (c *setupCmd) Run(con *console) error {
	s, err := newSite(c.Server)
	if err != nil {
		return err
	}
	password, err := readPassword(con, c.in, "A new password, 12 characters or more: ")
	if err != nil {
		return err
	}
	sig := catchInterrupts()
	defer sig.forget()
	var me api.Me
	if err := s.ask(sig.first, http.MethodPost, "/setup", api.Setup{Code: c.Code, Name: c.Name, Title: c.Title, Password: password}, &me); err != nil {
		return fmt.Errorf("make the first user: %w", err)
	}
	fmt.Fprintf(con.out, "%s is %s. Log in with: fanjet login --server %s --name %s\n", me.Name, me.Roles[0].Role, c.Server, me.Name)
	return s.ask(sig.first, http.MethodPost, "/logout", nil, nil)
}

type loginCmd struct {
	Server string `env:"FANJET_SERVER" default:"http://127.0.0.1:7780" placeholder:"URL" help:"The server's API; default ${default}."`
	Name   string `env:"FANJET_USER" required:"" placeholder:"NAME" help:"Who you are. The password is asked for, or read from the standard input."`
	Factor string `placeholder:"CODE" help:"The code of your second factor, if you have one."`
	Days   int    `default:"30" help:"How long the login is kept."`

	in io.Reader
}

// Run logs in and keeps a token that may what the user may, short of giving rights away.
func (c *loginCmd) Run(con *console) error {
	if c.Days < 1 || c.Days > 366 {
		return invalid("--days %d: 1 to 366", c.Days)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "a machine"
	}
	s, err := newSite(c.Server)
	if err != nil {
		return err
	}
	password, err := readPassword(con, c.in, fmt.Sprintf("Password of %s: ", c.Name))
	if err != nil {
		return err
	}
	sig := catchInterrupts()
	defer sig.forget()
	var me api.Me
	if err := s.ask(sig.first, http.MethodPost, "/login", api.Login{Name: c.Name, Password: password, Code: c.Factor}, &me); err != nil {
		return fmt.Errorf("log in: %w", err)
	}
	var token api.Token
	err = s.ask(sig.first, http.MethodPost, "/me/tokens", api.NewToken{Name: "fanjet on " + host, Permissions: []string{"*"}, Apps: []string{"*"}, Days: c.Days}, &token)
	out := s.ask(sig.first, http.MethodPost, "/logout", nil, nil)
	if err = errors.Join(err, out); err != nil {
		return err
	}
	file, err := keptLogin{Server: c.Server, User: me.Name, Token: token.Secret}.write()
	if err != nil {
		return err
	}
	fmt.Fprintf(con.out, "Logged in at %s as %s for %d days; the token is in %s.\n", c.Server, me.Name, c.Days, file)
	return nil
}

type logoutCmd struct{}

// Run forgets the login. Its token is good until it expires or somebody revokes it.
func (logoutCmd) Run(con *console) error {
	kept, err := readLogin()
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintln(con.out, "There is no login.")
		return nil
	}
	if err != nil {
		return err
	}
	file, err := loginFile()
	if err != nil {
		return err
	}
	if err := os.Remove(file); err != nil {
		return fmt.Errorf("forget the login: %w", err)
	}
	fmt.Fprintf(con.out, "The login at %s is forgotten. To end its token too: fanjet token revoke\n", kept.Server)
	return nil
}
