package processor

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode"
)

// DefaultURL is where a Worker looks for the broker when neither Config.URL nor the variable
// FANJET_URL of the environment says otherwise.
const DefaultURL = "nats://127.0.0.1:4222"

// Config says what a Worker is and where its broker is. Only App is required.
type Config struct {
	// App is the app the worker works for. Names of apps, workers and tags are of lower
	// case letters, digits, - and _, begin with a letter or a digit, and have at most 63.
	App string
	// Name tells the workers of the app apart; two live workers must not share one. Default:
	// host, process id and a random part.
	Name string
	// URL of the broker, several separated by commas. Default: $FANJET_URL, then DefaultURL.
	URL string
	// User and Password, or Token, or CredsFile authenticate against the broker.
	User, Password, Token, CredsFile string
	// Slots is how many chunks run at once. The tasks of a chunk run one after the other.
	// Default: twice GOMAXPROCS, at least 4.
	Slots int
	// Tags are the pools this worker serves besides "any".
	Tags []string
	// Labels are matched by jobs that ask for them.
	Labels map[string]string
	// Version of the user's program, shown with the worker; a job can ask for it.
	Version string
	// DrainTimeout is how long running tasks may go on after the worker was told to end. What
	// runs longer has its context canceled and is run elsewhere. Default 25 s: less than the
	// 30 s Kubernetes waits before it kills.
	DrainTimeout time.Duration
	// Logger is for the worker's own lines, not for those of tasks. Default slog.Default.
	Logger *slog.Logger
	// Metrics, if set, is called with the running totals at each beat, from one goroutine.
	Metrics func(Stats)
}

// Stats are running totals of a Worker since Run began.
type Stats struct {
	Chunks      int64 // chunks begun
	Succeeded   int64 // tasks
	Failed      int64 // tasks
	Returned    int64 // tasks given back unstarted or unfinished
	Refused     int64 // chunks this worker could not run
	Surplus     int64 // chunks given back at once for want of a slot
	Redelivered int64 // chunks delivered again while this worker still held them
	Asked       int64 // questions whether a chunk may run
	Stopped     int64 // chunks stopped or refused by a stop order
	Abandoned   int64 // tasks left behind that ignored the end of their context
	LinesLost   int64 // log lines dropped
	Busy        int   // slots taken now
	Held        int   // chunks held now, the finished ones not yet reported included
}

var name63 = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

const nameRule = "a name has 1 to 63 of a-z, 0-9, - and _, and begins with a letter or a digit"

func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name = defaultName()
	}
	if c.URL == "" {
		c.URL = os.Getenv("FANJET_URL")
	}
	if c.URL == "" {
		c.URL = DefaultURL
	}
	if c.Slots == 0 {
		c.Slots = max(4, 2*runtime.GOMAXPROCS(0))
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = 25 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if !name63.MatchString(c.App) {
		errs = append(errs, fmt.Errorf("processor.Config.App is %q: %s", c.App, nameRule))
	}
	if !name63.MatchString(c.Name) {
		errs = append(errs, fmt.Errorf("processor.Config.Name is %q: %s", c.Name, nameRule))
	}
	for _, t := range c.Tags {
		if !name63.MatchString(t) {
			errs = append(errs, fmt.Errorf("processor.Config.Tags has %q: %s", t, nameRule))
		}
	}
	if c.Slots < 1 || c.Slots > 10_000 {
		errs = append(errs, fmt.Errorf("processor.Config.Slots is %d: allowed are 1 to 10000", c.Slots))
	}
	if c.DrainTimeout < 0 {
		errs = append(errs, fmt.Errorf("processor.Config.DrainTimeout is %v: it cannot be negative", c.DrainTimeout))
	}
	return errors.Join(errs...)
}

// pools are the pools the worker pulls from: any, and its tags.
func (c Config) pools() []string {
	pools := []string{"any"}
	for _, t := range c.Tags {
		if !slices.Contains(pools, t) {
			pools = append(pools, t)
		}
	}
	return pools
}

// checkProcessorName allows any short printable name, such as "billing.Invoice".
func checkProcessorName(name string) error {
	if name == "" || len(name) > 128 || strings.ContainsFunc(name, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }) {
		return fmt.Errorf("processor name %q: it has 1 to 128 bytes, all printable, without spaces", name)
	}
	return nil
}

// defaultName is host-pid-random, cut and cleaned to be a name.
func defaultName() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "worker"
	}
	host = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, host)
	host = strings.Trim(host, "-")
	var b [3]byte
	_, _ = rand.Read(b[:]) // never fails
	tail := fmt.Sprintf("-%d-%s", os.Getpid(), hex.EncodeToString(b[:]))
	return strings.TrimLeft(host[:min(len(host), 63-len(tail))]+tail, "-")
}
