package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/fanjet/fanjet/engine"
)

// Once is the header by which a caller may ask again and get one run.
type Once struct {
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"255" doc:"The same key and body within 24 hours start one run, as long as the same server is asked and has not been restarted."`
}

const (
	keepAnswers  = 24 * time.Hour
	mostAnswers  = 100_000 // of all callers
	mostOfCaller = 10_000
	startTimeout = 30 * time.Second
)

// answers remembers what was started under which key. It is of this server and this process:
// callers that need more than that give the run a business key and look for it. It is safe for
// concurrent use.
type answers struct {
	mu     sync.Mutex
	m      map[answerKey]*answer
	order  []answerKey // as they came
	counts map[int64]int
}

type answerKey struct {
	user int64
	hash [32]byte // of the route and the key
}

type answer struct {
	body [32]byte
	at   time.Time
	done chan struct{}
	id   int64
	err  error
}

func newAnswers() *answers {
	return &answers{m: map[answerKey]*answer{}, counts: map[int64]int{}}
}

// begin is the answer of the key, and whether the caller is the one to make it.
func (s *answers) begin(k answerKey, body [32]byte, now time.Time) (ans *answer, first bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ans = s.m[k]; ans != nil && now.Sub(ans.at) < keepAnswers {
		if ans.body != body {
			return nil, false, fmt.Errorf("this Idempotency-Key came with another body already: take a new key: %w", engine.ErrConflict)
		}
		return ans, false, nil
	}
	s.drop(k) // one of yesterday
	for len(s.order) > 0 {
		k := s.order[0]
		if old := s.m[k]; old != nil && now.Sub(old.at) < keepAnswers && len(s.order) < mostAnswers {
			break
		}
		s.order = s.order[1:]
		s.drop(k)
	}
	if s.counts[k.user] >= mostOfCaller {
		return nil, false, &waitError{wait: time.Minute, text: fmt.Sprintf("you have used %d idempotency keys within a day", mostOfCaller)}
	}
	ans = &answer{body: body, at: now, done: make(chan struct{})}
	s.m[k] = ans
	s.counts[k.user]++
	s.order = append(s.order, k)
	return ans, true, nil
}

func (s *answers) drop(k answerKey) {
	if _, ok := s.m[k]; !ok {
		return
	}
	delete(s.m, k)
	if s.counts[k.user]--; s.counts[k.user] <= 0 {
		delete(s.counts, k.user)
	}
}

// end says what came of it. What failed may be tried again.
func (s *answers) end(k answerKey, ans *answer, id int64, err error) {
	ans.id, ans.err = id, err
	close(ans.done)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.m[k] == ans {
			s.drop(k)
		}
	}
}

// started starts a run, or is what was started under the same key.
func (a *API) started(ctx context.Context, route, key string, body any, start func(context.Context) (int64, error)) (int64, error) {
	if key == "" {
		return start(ctx)
	}
	b, err := json.Marshal(body)
	if err != nil {
		return 0, fmt.Errorf("encode what was asked: %w", err)
	}
	k := answerKey{principalOf(ctx).User, sha256.Sum256([]byte(route + "\x00" + key))}
	ans, first, err := a.answers.begin(k, sha256.Sum256(b), a.clock())
	if err != nil {
		return 0, err
	}
	if !first {
		select {
		case <-ans.done:
			return ans.id, ans.err
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	// The caller may go and ask again: what has begun goes on, so that its outcome is known.
	running, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	id, err := start(running)
	a.answers.end(k, ans, id, err)
	return id, err
}
