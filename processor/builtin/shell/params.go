package shell

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/fanjet/fanjet/processor/builtin/internal/strict"
)

// Params are the params of a job. Exactly one of Script, Name and Argv says what runs.
type Params struct {
	// Script is code for the interpreter.
	Script string `json:"script,omitempty"`
	// Name is the name of one of the worker's own scripts.
	Name string `json:"name,omitempty"`
	// Argv is a program and its arguments; no shell is involved.
	Argv []string `json:"argv,omitempty"`
	// Interpreter runs the script; the worker must allow it. Default: the worker's first one.
	Interpreter string `json:"interpreter,omitempty"`
	// Args are the arguments of a script: $1, $2, … in sh.
	Args []Value `json:"args,omitempty"`
	// Env are variables for the program. A null value sets none.
	Env map[string]*Value `json:"env,omitempty"`
	// Dir is the working folder, absolute, within those the worker allows. Default: the private
	// folder of the run.
	Dir string `json:"dir,omitempty"`
	// Stdin is what the program reads; default nothing.
	Stdin Value `json:"stdin,omitempty"`
}

// Value is a text, or any other JSON, which reaches the program as it is written.
type Value string

// UnmarshalJSON takes a text as it is and the rest as compact JSON.
func (v *Value) UnmarshalJSON(raw []byte) error {
	if raw[0] == '"' {
		return json.Unmarshal(raw, (*string)(v))
	}
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return err
	}
	*v = Value(b.String())
	return nil
}

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

const variableRule = "the name of a variable has letters, digits and _, and begins with no digit"

// parse decodes params strictly and holds them to what the worker allows.
func (c Config) parse(raw []byte) (*Params, error) {
	p := &Params{}
	if err := strict.Decode(raw, p); err != nil {
		return nil, err
	}
	if err := c.what(p); err != nil {
		return nil, err
	}
	return p, data(p)
}

// what checks what is to run.
func (c Config) what(p *Params) error {
	n := 0
	for _, given := range []bool{strings.TrimSpace(p.Script) != "", p.Name != "", len(p.Argv) > 0} {
		if given {
			n++
		}
	}
	if n != 1 {
		return errors.New(`give exactly one of "script", "name" and "argv"`)
	}
	switch {
	case p.Name != "":
		script, ok := c.Scripts[p.Name]
		if !ok {
			return fmt.Errorf("this worker has no script %q; its configuration names them (Scripts)", p.Name)
		}
		p.Script = script
	case c.Named:
		return errors.New(`this worker runs its own scripts only: give "name"`)
	case len(p.Argv) > 0 && (len(p.Args) > 0 || p.Interpreter != ""):
		return errors.New(`"args" and "interpreter" are for scripts; "argv" has the arguments itself`)
	case len(p.Argv) > 0 && p.Argv[0] == "":
		return errors.New(`"argv" begins with an empty name of a program`)
	}
	if len(p.Script) > maxScript {
		return fmt.Errorf("the script has %d bytes; at most %d are taken", len(p.Script), maxScript)
	}
	if p.Interpreter == "" {
		p.Interpreter = c.Interpreters[0]
	}
	if !slices.Contains(c.Interpreters, p.Interpreter) {
		return fmt.Errorf("this worker does not allow the interpreter %q; it allows %q", p.Interpreter, c.Interpreters)
	}
	return nil
}

// data checks that the values can be handed to a program at all.
func data(p *Params) error {
	total := 0
	check := func(what, s string) error {
		total += len(s)
		switch {
		case strings.ContainsRune(s, 0):
			return fmt.Errorf("%s has a NUL byte, which no program can be given", what)
		case len(s) > maxVariable:
			return fmt.Errorf("%s has %d bytes; at most %d can be given, hand it over as \"stdin\"", what, len(s), maxVariable)
		}
		return nil
	}
	for i, a := range p.Argv {
		if err := check(fmt.Sprintf("argv[%d]", i), a); err != nil {
			return err
		}
	}
	for i, a := range p.Args {
		if err := check(fmt.Sprintf("args[%d]", i), string(a)); err != nil {
			return err
		}
	}
	for name, v := range p.Env {
		if !variable.MatchString(name) {
			return fmt.Errorf("env has %q: %s", name, variableRule)
		}
		if strings.HasPrefix(name, "FANJET_") {
			return fmt.Errorf("env has %q: names with FANJET_ belong to Fanjet", name)
		}
		if v != nil {
			if err := check("env "+name, name+"="+string(*v)); err != nil {
				return err
			}
		}
	}
	if total > maxArguments {
		return fmt.Errorf("arguments and variables have %d bytes; at most %d can be given, use \"stdin\"", total, maxArguments)
	}
	return nil
}
