// Package http is a built-in processor that makes one HTTP request and judges the response. A
// worker that wants it registers it; none has it by itself:
//
//	p, err := http.New(http.Config{})
//	…
//	w.Register("http", p)
//
// The params of a job are JSON; Params documents them. The simplest are {"url": "https://example.com/ping"}.
//
// # Where it goes
//
// To public addresses. Private, loopback, link-local and other special addresses are refused, also
// wrapped in IPv6, unless Config.AllowPrivate has them; those where clouds serve credentials are
// refused even then. What is checked is the address that is dialed, after the name is resolved, and
// again after each redirect, so neither a spelling nor a name that changes its mind gets around it.
// A proxy of the environment is not used: it would resolve the names.
//
// # Secrets
//
// Errors, logs and results show an address without user, password, query and fragment, and never
// the body or headers of a request. On the way to another host a redirect loses all headers
// of the job but harmless ones, the Authorization first.
//
// # Retries and repetition
//
// The processor tries once; a job's retry policy does the rest, and "Retry-After" of a 429 or 503 is
// obeyed up to ten minutes. A task runs at least once, so a request may arrive twice: anything but
// GET, HEAD and OPTIONS carries an Idempotency-Key that is the same over all attempts, unless the
// job sets its own. The service must honour it, or bear the repetition.
package http
