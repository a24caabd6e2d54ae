package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/fanjet/fanjet/engine/api"
)

// apiTimeout bounds one request to the API.
const apiTimeout = 30 * time.Second

// site asks the HTTP API of a server, as whoever the token or the cookie is of.
type site struct {
	base, token string
	cookie      *http.Cookie
}

// refusedError is what the API refused, in its words.
type refusedError struct {
	status int
	detail string
}

func (e *refusedError) Error() string { return e.detail }

// newSite checks the address.
func newSite(base string) (*site, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, invalid("--server %s: write it as https://host or http://127.0.0.1:7780", base)
	}
	if u.Scheme == "http" && !loopback(u.Hostname()) {
		return nil, invalid("--server %s: a password or token would be sent in the clear; use https", base)
	}
	return &site{base: strings.TrimSuffix(base, "/")}, nil
}

// ask sends in, if it is not nil, and reads the answer into out, if that is not nil.
func (s *site) ask(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encode the request: %w", err)
		}
		body = bytes.NewReader(b)
	}
	q, err := http.NewRequestWithContext(ctx, method, s.base+"/api/v1"+path, body)
	if err != nil {
		return fmt.Errorf("ask the server: %w", err)
	}
	if in != nil {
		q.Header.Set("Content-Type", "application/json")
	}
	if s.token != "" {
		q.Header.Set("Authorization", "Bearer "+s.token)
	} else if s.cookie != nil {
		q.AddCookie(s.cookie)
		q.Header.Set("Origin", s.base)
	}
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		return fmt.Errorf("no server answers: %w; is it running there, with --http?", err)
	}
	defer r.Body.Close()
	for _, c := range r.Cookies() {
		s.cookie = c
	}
	if r.StatusCode >= http.StatusBadRequest {
		var problem struct {
			Detail string `json:"detail"`
			Errors []struct{ Message, Location string }
		}
		if err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&problem); err != nil || problem.Detail == "" {
			problem.Detail = "the server answered " + r.Status
		}
		for _, e := range problem.Errors {
			problem.Detail += "; " + e.Location + ": " + e.Message
		}
		return &refusedError{r.StatusCode, problem.Detail}
	}
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(r.Body).Decode(out); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	return nil
}

// siteFlags say which server is asked. What is left out is of the last fanjet login.
type siteFlags struct {
	Server string `env:"FANJET_SERVER" placeholder:"URL" help:"The server's API, https://host or http://127.0.0.1:7780; default that of fanjet login."`
	Token  string `env:"FANJET_API_TOKEN" help:"An API token, fj_…; default that of fanjet login."`
}

// site is the server with a token.
func (f *siteFlags) site() (*site, error) {
	kept, err := readLogin()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	base, token := f.Server, f.Token
	if base == "" {
		base = kept.Server
	}
	if token == "" && base == kept.Server {
		token = kept.Token
	}
	if base == "" || token == "" {
		return nil, invalid("log in with fanjet login first, or give --server and --token (or FANJET_SERVER and FANJET_API_TOKEN)")
	}
	s, err := newSite(base)
	if err != nil {
		return nil, err
	}
	s.token = token
	return s, nil
}

// personFlags are for what gives rights away, which no token may: a person logs in for it.
type personFlags struct {
	Server string `env:"FANJET_SERVER" placeholder:"URL" help:"The server's API, https://host or http://127.0.0.1:7780; default that of fanjet login."`
	As     string `env:"FANJET_USER" placeholder:"NAME" help:"Who you are; default as of fanjet login. The password is asked for, or read from the standard input."`
	Factor string `placeholder:"CODE" help:"The code of your second factor, if you have one."`

	in io.Reader
}

// with logs in, does something, and logs out.
func (f *personFlags) with(con *console, do func(ctx context.Context, s *site) error) error {
	kept, err := readLogin()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if f.Server == "" {
		f.Server = kept.Server
	}
	if f.As == "" {
		f.As = kept.User
	}
	if f.Server == "" || f.As == "" {
		return invalid("--server and --as are missing: which server, and who are you there?")
	}
	s, err := newSite(f.Server)
	if err != nil {
		return err
	}
	password, err := readPassword(con, f.in, fmt.Sprintf("Password of %s: ", f.As))
	if err != nil {
		return err
	}
	sig := catchInterrupts()
	defer sig.forget()
	if err := s.ask(sig.first, http.MethodPost, "/login", api.Login{Name: f.As, Password: password, Code: f.Factor}, nil); err != nil {
		return fmt.Errorf("log in: %w", err)
	}
	err = do(sig.first, s)
	out := s.ask(context.WithoutCancel(sig.first), http.MethodPost, "/logout", nil, nil)
	if err == nil && out != nil {
		err = fmt.Errorf("log out: %w", out)
	}
	return err
}

// readPassword asks a person for it, or reads the first line of what is no terminal.
func readPassword(con *console, in io.Reader, prompt string) (string, error) {
	if in == nil {
		if fd := int(os.Stdin.Fd()); term.IsTerminal(fd) {
			fmt.Fprint(con.err, prompt)
			b, err := term.ReadPassword(fd)
			fmt.Fprintln(con.err)
			if err != nil {
				return "", fmt.Errorf("read the password: %w", err)
			}
			return string(b), nil
		}
		in = os.Stdin
	}
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && (!errors.Is(err, io.EOF) || line == "") {
		return "", fmt.Errorf("read the password from the standard input: %w", err)
	}
	return strings.TrimRight(line, "\r\n"), nil
}

// keptLogin is what fanjet login keeps.
type keptLogin struct {
	Server string `json:"server"`
	User   string `json:"user"`
	Token  string `json:"token"`
}

// loginFile is where a login is kept, for this user of the machine alone.
func loginFile() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("where to keep the login: %w; set XDG_CONFIG_HOME", err)
	}
	return filepath.Join(dir, "fanjet", "login.json"), nil
}

func readLogin() (kept keptLogin, err error) {
	file, err := loginFile()
	if err != nil {
		return kept, err
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return kept, fmt.Errorf("read the login: %w", err)
	}
	if err := json.Unmarshal(b, &kept); err != nil {
		return kept, fmt.Errorf("read the login in %s: %w; log in again", file, err)
	}
	return kept, nil
}

func (k keptLogin) write() (file string, err error) {
	if file, err = loginFile(); err != nil {
		return "", err
	}
	b, err := json.Marshal(k)
	if err != nil {
		return "", fmt.Errorf("keep the login: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return "", fmt.Errorf("keep the login: %w", err)
	}
	// A file beside it takes its place, so that it is never half of one, nor readable by others.
	tmp, err := os.CreateTemp(filepath.Dir(file), "login-")
	if err != nil {
		return "", fmt.Errorf("keep the login: %w", err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	_, err = tmp.Write(append(b, '\n'))
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), file)
	}
	if err != nil {
		return "", fmt.Errorf("keep the login: %w", err)
	}
	return file, nil
}
