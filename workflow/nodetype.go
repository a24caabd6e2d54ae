package workflow

import (
	"reflect"
	"slices"
	"time"

	"go.yaml.in/yaml/v4"
)

// ownFields are the fields that every node has.
var ownFields = []string{"id", "type", "title", "needs", "join", "on_failure", "disabled"}

// typeFields are the fields that only nodes of one type have. A job node has those of Spec
// beside them.
var typeFields = map[NodeType][]string{
	TypeJob:      {"for_each"},
	TypeDecision: {"expr"},
	TypeWait:     {"for", "until"},
	TypeSignal:   {"signal", "expires", "default"},
	TypeApproval: {"signal", "expires", "default", "roles"},
	TypeWorkflow: {"workflow", "params", "timeout"},
}

// nouns are how messages call a node of a type.
var nouns = map[NodeType]string{
	TypeJob: "a job node", TypeDecision: "a decision", TypeWait: "a wait node", TypeSignal: "a signal node",
	TypeApproval: "an approval node", TypeWorkflow: "a nested workflow",
}

// checkType checks what a node has for its type.
func (d *decoder) checkType(w *placed, place func(string) *yaml.Node) {
	kind := w.Type
	if kind == "" {
		kind = TypeJob
	}
	if !slices.Contains(nodeTypes, kind) {
		oneOf(d, place("type"), "type", w.Type, nodeTypes...)
		return
	}
	if kind == TypeJob {
		d.foreignFields(w)
		d.checkJob(w, place)
		return
	}
	for field, at := range w.at {
		if !slices.Contains(typeFields[kind], field) && !slices.Contains(ownFields, field) {
			hint := ""
			switch {
			case field == "timeout" && slices.Contains(typeFields[kind], "expires"):
				hint = "; use expires"
			case field == "retry" && kind == TypeWorkflow:
				hint = "; retry the nodes inside of it"
			}
			d.fail(at, "%s has no %s%s", nouns[kind], field, hint)
		}
	}
	switch kind {
	case TypeDecision:
		d.checkDecision(w, place)
	case TypeWait:
		d.checkWait(w, place)
	case TypeSignal, TypeApproval:
		d.checkSignal(w, place)
	default:
		d.checkNested(w, place)
	}
}

// foreignFields refuses the fields of other types on a job node.
func (d *decoder) foreignFields(w *placed) {
	for _, kind := range nodeTypes[1:] {
		for _, field := range typeFields[kind] {
			at := w.at[field]
			if at == nil || field == "params" || field == "timeout" || kind == TypeApproval && field != "roles" {
				continue
			}
			d.fail(at, "%s belongs to %s; set type: %s", field, nouns[kind], kind)
		}
	}
}

func (d *decoder) checkDecision(w *placed, place func(string) *yaml.Node) {
	if w.Expr == "" {
		d.fail(place("expr"), "a decision needs an expr")
	}
	if w.Disabled {
		d.fail(place("disabled"), "a decision cannot be disabled: nothing would choose its path; disable the nodes behind it")
	}
}

// maxWait bounds every wait: beyond it a definition surely means something else.
const maxWait = 10 * 366 * 24 * time.Hour

func (d *decoder) checkWait(w *placed, place func(string) *yaml.Node) {
	_, hasFor := w.at["for"]
	if hasFor && !isDuration(w.at["for"]) {
		return // that has been said
	}
	switch {
	case hasFor && w.Until != nil:
		d.fail(place("until"), "a wait node has either for or until, not both")
	case !hasFor && w.Until == nil:
		d.fail(place("for"), "a wait node needs for: a duration, or until: a time")
	case hasFor && (w.For <= 0 || time.Duration(w.For) > maxWait):
		d.fail(place("for"), "for must be more than 0 and at most 10 years, it is %v", time.Duration(w.For))
	}
}

func isDuration(n *yaml.Node) bool {
	_, err := time.ParseDuration(n.Value)
	return err == nil && tagOf(n) == "!!str"
}

func (d *decoder) checkSignal(w *placed, place func(string) *yaml.Node) {
	if w.Signal != "" {
		d.name(place("signal"), "signal", w.Signal)
	}
	if at, has := w.at["expires"]; has && isDuration(at) && (w.Expires <= 0 || time.Duration(w.Expires) > maxWait) {
		d.fail(place("expires"), "expires must be more than 0 and at most 10 years, it is %v", time.Duration(w.Expires))
	}
	if at, has := w.at["default"]; has {
		switch {
		case w.Expires == 0:
			d.fail(at, "default needs expires: it is the payload when no signal has come by then")
		case w.Default == nil:
			w.Default = []byte("null")
		case len(w.Default) > MaxSignal:
			d.fail(at, "default has %d bytes, the limit is %d", len(w.Default), MaxSignal)
		}
	}
	if len(w.Roles) > maxRoles {
		d.fail(place("roles"), "there are %d roles, the limit is %d", len(w.Roles), maxRoles)
	}
	for _, r := range w.Roles {
		if r == "" || len(r) > maxText {
			d.fail(place("roles"), "a role has 1 to %d bytes", maxText)
			break
		}
	}
}

// Bounds of signals.
const (
	// MaxSignal is the largest payload of a signal, in bytes.
	MaxSignal = 64 << 10
	maxRoles  = 100
)

func (d *decoder) checkNested(w *placed, place func(string) *yaml.Node) {
	d.name(place("workflow"), "workflow", w.Workflow)
	if w.Timeout != nil && *w.Timeout < 0 {
		d.fail(place("timeout"), "timeout must not be negative")
	}
	if len(w.Params) > MaxParams {
		d.fail(place("params"), "params has %d bytes, the limit is %d", len(w.Params), MaxParams)
	}
}

func (d *decoder) checkJob(w *placed, place func(string) *yaml.Node) {
	switch {
	case w.Job != "" && w.Processor != "":
		d.fail(place("processor"), "a node has either job or processor, not both")
		return
	case w.Job == "" && w.Processor == "":
		d.fail(place("job"), "a job node needs a job (registered) or a processor (inline)")
		return
	case w.Job != "":
		d.name(place("job"), "job", w.Job)
		spec := fieldsOf(reflect.TypeFor[Spec]()).index
		for field, at := range w.at {
			if spec[field] != nil && field != "params" && field != "retry" && field != "timeout" {
				d.fail(at, "%s belongs to the job %q; a node may replace only params, retry and timeout", field, clip(w.Job))
			}
		}
	}
	if at, has := w.at["for_each"]; has {
		switch {
		case w.ForEach == nil:
			d.fail(at, "for_each must be a list, or one ${ } that gives a list, not empty")
		case len(w.ForEach) > MaxParams:
			d.fail(at, "for_each has %d bytes, the limit is %d; emit the items from a job of mode map", len(w.ForEach), MaxParams)
		}
		if w.Mode == Broadcast {
			d.fail(place("mode"), "for_each runs over a list as a map; the mode is map or map_reduce, not broadcast")
		}
	}
	n := w.node()
	for _, p := range n.Resolve(nil).problems(w.Job == "") {
		d.fail(place(p.field), "%s", p.message)
	}
}
