package main

import (
	"encoding/json"
	"strings"

	"github.com/fanjet/fanjet/workflow"
)

// parseParams reads key=value pairs. A value is JSON if it is valid JSON and the declared
// type is not string; else it is the text itself.
func parseParams(def *workflow.Definition, pairs []string) (map[string]json.RawMessage, error) {
	given := make(map[string]json.RawMessage, len(pairs))
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, invalid("--param %s: write it as name=value", pair)
		}
		if _, twice := given[name]; twice {
			return nil, invalid("--param %s is given twice", name)
		}
		given[name] = paramValue(def.Params[name].Type, value)
	}
	if _, err := def.BindParams(given); err != nil {
		return nil, invalid("params of workflow %q: %w", def.Name, err)
	}
	return given, nil
}

func paramValue(t workflow.ParamType, text string) json.RawMessage {
	if t != workflow.ParamString && json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	b, _ := json.Marshal(text) // a string always encodes
	return b
}
