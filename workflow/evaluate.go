package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// values compiles what else a node evaluates, and checks what can be known before it runs.
func (b *builder) values(i int, compile func(path string, raw json.RawMessage) *template) {
	node := &b.def.Nodes[i]
	if node.ForEach != nil {
		t := compile("for_each", node.ForEach)
		b.lists[i] = t
		if t != nil && !t.gives('[') {
			b.fail(i, "for_each", "for_each must be a list, or one ${ } that gives a list")
		}
	}
	if node.Until != nil {
		t := compile("until", node.Until)
		b.times[i] = t
		if t != nil && t.raw != nil {
			if _, err := parseTime(t.raw); err != nil {
				b.fail(i, "until", "until %v", err)
			}
		}
	}
	if t := b.templates[i]; node.Kind() == TypeWorkflow && t != nil && !t.gives('{') {
		b.fail(i, "params", "the params of a nested workflow are a mapping of its params, or one ${ } that gives one")
	}
}

// gives tells whether the template may give a value that starts with this: [ or {.
func (t *template) gives(open byte) bool {
	switch {
	case t.raw != nil:
		return t.raw[0] == open
	case t.parts != nil:
		return t.exact
	default:
		return (open == '{') == (t.names != nil)
	}
}

// parseTime reads RFC 3339 text or epoch milliseconds.
func parseTime(raw json.RawMessage) (int64, error) {
	v, err := decodeValue(raw)
	if err != nil {
		return 0, err
	}
	switch v := v.(type) {
	case int:
		if v > 0 && v < maxTime {
			return int64(v), nil
		}
	case string:
		if t, err := time.Parse(time.RFC3339, v); err == nil && t.UnixMilli() > 0 && t.UnixMilli() < maxTime {
			return t.UnixMilli(), nil
		}
	}
	return 0, fmt.Errorf("must be a time such as 2026-12-24T18:00:00Z, or epoch milliseconds, not %s", show(v))
}

// maxTime is the year 10 000, in epoch milliseconds.
const maxTime = 253_402_300_800_000

// Until evaluates when the wait node i ends: now and its duration, or its time, in epoch
// milliseconds. One that is past ends at once.
func (g *Graph) Until(i int, now int64, env Env) (int64, error) {
	n := &g.def.Nodes[i]
	t := g.times[i]
	if t == nil {
		return now + n.For.Milliseconds(), nil
	}
	b, err := t.append(nil, newScope(env))
	if err != nil {
		return 0, fmt.Errorf("until of node %q: %w", n.ID, err)
	}
	at, err := parseTime(b)
	if err != nil {
		return 0, fmt.Errorf("until of node %q %w", n.ID, err)
	}
	if at > now+maxWait.Milliseconds() {
		return 0, fmt.Errorf("until of node %q is %s, more than 10 years away", n.ID, time.UnixMilli(at).UTC().Format(time.RFC3339))
	}
	return at, nil
}

// Items evaluates the list of a node with for_each: a JSON list of at most MaxParams bytes.
func (g *Graph) Items(i int, env Env) (json.RawMessage, error) {
	n := &g.def.Nodes[i]
	t := g.lists[i]
	if t == nil {
		return nil, fmt.Errorf("node %q has no for_each", n.ID)
	}
	b, err := t.append(nil, newScope(env))
	if err != nil {
		return nil, fmt.Errorf("for_each of node %q: %w", n.ID, err)
	}
	if len(b) == 0 || b[0] != '[' {
		v, err := decodeValue(b)
		if err != nil {
			return nil, fmt.Errorf("for_each of node %q: %w", n.ID, err)
		}
		return nil, fmt.Errorf("for_each of node %q must give a list, it gave %s of type %s", n.ID, show(v), kindOf(v))
	}
	return b, nil
}

// Params evaluates the params of node i; nil when the node has none, so that those of its
// job stand. The result is at most MaxParams bytes. Errors are *ExprError or say which bound
// was broken; the same Env gives the same result.
func (g *Graph) Params(i int, env Env) (json.RawMessage, error) {
	t := g.templates[i]
	if t == nil {
		return nil, nil
	}
	b, err := t.append(nil, newScope(env))
	if err != nil {
		return nil, fmt.Errorf("params of node %q: %w", g.def.Nodes[i].ID, err)
	}
	return b, nil
}

// Decide evaluates the decision i. It must give a bool when its edges are for bools, or one
// of the strings and numbers that its edges are for; everything else is an *ExprError that
// shows the expression and the value.
func (g *Graph) Decide(i int, env Env) (Choice, error) {
	p := g.decisions[i]
	if p == nil {
		return "", fmt.Errorf("node %q is not a decision", g.def.Nodes[i].ID)
	}
	v, err := p.run(newScope(env))
	if err != nil {
		return "", fmt.Errorf("decision %q: %w", g.def.Nodes[i].ID, err)
	}
	c, err := choiceOf(v)
	if err == nil {
		err = g.accepts(i, c)
	}
	if err != nil {
		return "", fmt.Errorf("decision %q: %w", g.def.Nodes[i].ID,
			&ExprError{Expr: p.source, Message: fmt.Sprintf("gave %s of type %s: %v", show(v), kindOf(v), err)})
	}
	return c, nil
}

// accepts reports why a decision cannot take a choice.
func (g *Graph) accepts(i int, c Choice) error {
	want := g.choices[i]
	if len(want) == 0 || isBool(want[0]) {
		if !isBool(c) {
			return errors.New("a decision must give true or false")
		}
		return nil
	}
	if !slices.Contains(want, c) {
		return fmt.Errorf("no edge is for it; the edges are for %s", clip(list(want)))
	}
	return nil
}
