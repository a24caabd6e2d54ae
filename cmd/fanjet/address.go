package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// dialPatience bounds how long a command waits for a broker that does not answer.
const dialPatience = 5 * time.Second

// unreachable says that no broker took the connection, and what to look at.
func unreachable(err error, address, ask string) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("nothing answers at %s within %v; %s", redactURL(address), dialPatience, ask)
	}
	return fmt.Errorf("%w; %s", err, ask)
}

// checkURL refuses what is no address of NATS; several are separated by commas.
func checkURL(flag, text string) error {
	for _, one := range strings.Split(text, ",") {
		u, err := url.Parse(strings.TrimSpace(one))
		switch {
		case err != nil:
			return invalid("%s: not an address; write it as nats://host:4222", flag)
		case u.Scheme != "nats" && u.Scheme != "tls" && u.Scheme != "ws" && u.Scheme != "wss", u.Hostname() == "":
			return invalid("%s %s: not an address of NATS; write it as nats://host:4222", flag, u.Redacted())
		case u.Port() != "":
			if p, err := strconv.Atoi(u.Port()); err != nil || p < 1 || p > 65535 {
				return invalid("%s %s: the port must be 1 to 65535", flag, u.Redacted())
			}
		}
	}
	return nil
}

// listenAddress takes HOST:PORT apart. Port 0 is any free one.
func listenAddress(text string) (host string, port int, err error) {
	host, p, err := net.SplitHostPort(text)
	if err == nil {
		port, err = strconv.Atoi(p)
	}
	if err != nil || port < 0 || port > 65535 {
		return "", 0, invalid("--listen %s: write it as HOST:PORT, such as 127.0.0.1:4222", text)
	}
	if host == "" {
		host = "0.0.0.0"
	}
	return host, port, nil
}

// loopback tells whether only this machine reaches the host.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// withToken is the URL with the token in it, for a program that knows only the URL.
func withToken(address, token string) string {
	if token == "" {
		return address
	}
	all := strings.Split(address, ",")
	for i, one := range all {
		if u, err := url.Parse(strings.TrimSpace(one)); err == nil && u.User == nil {
			u.User = url.User(token)
			all[i] = u.String()
		}
	}
	return strings.Join(all, ",")
}

// redactURL is the address without a password or token, for people to see.
func redactURL(address string) string {
	all := strings.Split(address, ",")
	for i, one := range all {
		if u, err := url.Parse(strings.TrimSpace(one)); err == nil && u.User != nil {
			u.User = nil
			all[i] = u.String()
		}
	}
	return strings.Join(all, ",")
}

// connectHint says how a worker connects to the address.
func connectHint(app, address string, token bool) string {
	hint := fmt.Sprintf("FANJET_URL=%s", address)
	if token {
		hint = "FANJET_TOKEN=… " + hint
	}
	if app != "" {
		hint += " FANJET_APP=" + app
	}
	return hint
}
