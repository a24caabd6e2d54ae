package main

import (
	"errors"
	"fmt"
	"time"
)

type serverCmd struct {
	Data   string        `default:"fanjet-data" env:"FANJET_DATA" type:"path" help:"Directory of what is embedded."`
	DB     string        `env:"FANJET_DB" placeholder:"URL" help:"mysql://user:password@host:3306/database, or sqlite:PATH; default SQLite in the data directory."`
	NATS   string        `name:"nats" env:"FANJET_NATS" placeholder:"URL" help:"An external NATS with JetStream, nats://host:4222, several of a cluster separated by commas; default an embedded one."`
	Copies int           `name:"replicas" default:"1" env:"FANJET_REPLICAS" help:"On how many servers of a NATS cluster each stream lies: 1, or 3 with --nats. All servers of Fanjet must be given the same."`
	Listen string        `placeholder:"HOST:PORT" help:"Where the embedded NATS listens; default 127.0.0.1:4222. Port 0 is any free one. Beyond this machine it needs --token."`
	Token  string        `env:"FANJET_TOKEN" help:"Asked of everybody who connects to the embedded NATS, or shown to the external one."`
	Creds  string        `env:"FANJET_CREDS" type:"path" help:"A credentials file for the external NATS."`
	Ack    time.Duration `name:"ack-wait" default:"8s" help:"How long a chunk may be unheard of before it is delivered again."`
	Lease  time.Duration `default:"3s" help:"How long the server may be silent before another takes over."`
	Beat   time.Duration `default:"2s" help:"How often workers beat; after three missed ones they are dead."`
	httpFlags
	logFlags
}

// Run serves until SIGTERM or Ctrl-C.
func (c *serverCmd) Run(con *console) error {
	parts, err := c.parts()
	if err != nil {
		return err
	}
	parts.log = c.logger(con.err)
	sig := catchInterrupts()
	defer sig.forget()
	p, err := startParts(sig.first, parts)
	if err != nil {
		if errors.Is(err, errInterrupted) {
			return errInterrupted
		}
		return fmt.Errorf("start the server: %w", err)
	}
	if p.http != nil {
		if err := p.http.invite(sig.first, con.out); err != nil {
			return errors.Join(err, p.close())
		}
	}
	parts.log.Info("server is ready", "broker", redactURL(p.url), "worker", "fanjet worker --app APP --url "+redactURL(p.url), "program", connectHint("APP", redactURL(p.url), c.Token != ""), "http", p.httpURL())
	select {
	case <-sig.first.Done():
		parts.log.Info("server stops")
	case <-p.ended:
		parts.log.Error("server ended by itself")
	}
	if err := p.close(); err != nil {
		return fmt.Errorf("stop the server: %w", err)
	}
	return nil
}

// parts checks the flags and says what the server is made of.
func (c *serverCmd) parts() (partsConfig, error) {
	web, err := c.httpFlags.config(c.Data)
	if err != nil {
		return partsConfig{}, err
	}
	p := partsConfig{http: web, dir: c.Data, dbURL: c.DB, natsURL: c.NATS, replicas: c.Copies, token: c.Token, creds: c.Creds, ackWait: c.Ack, lease: c.Lease, beat: c.Beat}
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{{"--ack-wait", c.Ack}, {"--lease", c.Lease}, {"--beat", c.Beat}} {
		if d.value < 50*time.Millisecond {
			return p, invalid("%s %v: at least 50ms", d.flag, d.value)
		}
	}
	if c.Copies != 1 && c.Copies != 3 {
		return p, invalid("--replicas %d: 1, or 3 on a cluster of NATS", c.Copies)
	}
	if c.Copies != 1 && c.NATS == "" {
		return p, invalid("--replicas %d needs a cluster of at least three NATS servers; name them with --nats, separated by commas", c.Copies)
	}
	if c.NATS != "" {
		if c.Listen != "" {
			return p, invalid("--listen is for the embedded NATS; leave it out with --nats")
		}
		if c.DB != "" {
			p.dir = "" // nothing is embedded
		}
		return p, checkURL("--nats", c.NATS)
	}
	if c.Creds != "" {
		return p, invalid("--creds is for an external NATS; the embedded one takes --token")
	}
	listen := c.Listen
	if listen == "" {
		listen = "127.0.0.1:4222"
	}
	if p.host, p.port, err = listenAddress(listen); err != nil {
		return p, err
	}
	if p.port == 0 {
		p.port = -1
	}
	if c.Token == "" && !loopback(p.host) {
		return p, invalid("--listen %s: others could reach it, and run and read everything; give --token (or FANJET_TOKEN), or listen on 127.0.0.1", listen)
	}
	return p, nil
}
