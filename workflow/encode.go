package workflow

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v4"
)

// EncodeYAML writes a definition, or anything that has a JSON form, as YAML for people; ParseAll
// reads a definition back to the same. It has no --- before it.
func EncodeYAML(v any) ([]byte, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode as JSON: %w", err)
	}
	roots, p := readJSON("", text.Bytes(), false)
	if p != nil {
		return nil, fmt.Errorf("encode as YAML: %s", p.Message)
	}
	restyle(roots[0])
	var out bytes.Buffer
	dumper := yaml.NewEncoder(&out)
	dumper.SetIndent(2)
	if err := dumper.Encode(roots[0]); err != nil {
		return nil, fmt.Errorf("encode as YAML: %w", err)
	}
	if err := dumper.Close(); err != nil {
		return nil, fmt.Errorf("encode as YAML: %w", err)
	}
	return out.Bytes(), nil
}

// restyle turns the look of JSON into that of YAML: blocks, quotes only where they are needed,
// and text of several lines as it is.
func restyle(n *yaml.Node) {
	switch n.Kind {
	case yaml.MappingNode, yaml.SequenceNode:
		if n.Style = 0; len(n.Content) == 0 {
			n.Style = yaml.FlowStyle
		}
	case yaml.ScalarNode:
		if n.Style = 0; n.Tag == "!!str" && strings.Contains(n.Value, "\n") {
			n.Style = yaml.LiteralStyle
		}
	}
	for _, c := range n.Content {
		restyle(c)
	}
}
