package workflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// template is a params value with expressions in it, compiled.
type template struct {
	raw   json.RawMessage // without any expression: the value itself
	parts []part          // a text: its parts in order
	exact bool            // the text is one expression, which gives the value itself
	list  []*template
	names []string // of an object, in order; the values are list
}

// part is a literal or an expression of a text.
type part struct {
	text    string
	program *program
}

// templateCompiler compiles the params and other values of one node.
type templateCompiler struct {
	exprs *exprCompiler
	// found is called with every expression and the path of its text.
	found func(path string, p *program, err error)
}

// compile builds the template of raw, which stands at path; nil when raw is empty.
func (c *templateCompiler) compile(path string, raw json.RawMessage) (*template, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	if !bytes.Contains(raw, []byte("${")) {
		return &template{raw: raw}, nil
	}
	if err := checkDepth(raw); err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber() // numbers of a template pass through as they are written
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("%s is not JSON: %w", path, err)
	}
	return c.value(v, path), nil
}

func (c *templateCompiler) value(v any, path string) *template {
	switch v := v.(type) {
	case string:
		return c.text(v, path)
	case []any:
		t := &template{list: make([]*template, len(v))}
		for i, item := range v {
			t.list[i] = c.value(item, path+"/"+strconv.Itoa(i))
		}
		return t
	case map[string]any:
		t := &template{names: make([]string, 0, len(v)), list: make([]*template, 0, len(v))}
		for name := range v {
			t.names = append(t.names, name)
		}
		slices.Sort(t.names)
		for _, name := range t.names {
			t.list = append(t.list, c.value(v[name], path+"/"+name))
		}
		return t
	}
	raw, err := json.Marshal(v)
	if err != nil { // null, bools and numbers that were JSON
		raw = json.RawMessage("null")
	}
	return &template{raw: raw}
}

// text splits a text into literals and ${ } expressions; $${ is a literal ${.
func (c *templateCompiler) text(s, path string) *template {
	t := &template{}
	var literal strings.Builder
	flush := func() {
		if literal.Len() > 0 {
			t.parts = append(t.parts, part{text: literal.String()})
			literal.Reset()
		}
	}
	for s != "" {
		i := strings.Index(s, "${")
		if i < 0 {
			literal.WriteString(s)
			break
		}
		if i > 0 && s[i-1] == '$' {
			literal.WriteString(s[:i-1] + "${")
			s = s[i+2:]
			continue
		}
		literal.WriteString(s[:i])
		end := closing(s[i+2:])
		if end < 0 {
			c.found(path, nil, errors.New("a ${ is not closed with }; a literal ${ is written $${"))
			return t
		}
		flush()
		p, err := c.exprs.compile(s[i+2 : i+2+end])
		c.found(path, p, err)
		t.parts = append(t.parts, part{program: p})
		s = s[i+2+end+1:]
	}
	flush()
	t.exact = len(t.parts) == 1 && t.parts[0].text == ""
	if len(t.parts) == 0 || (len(t.parts) == 1 && !t.exact) {
		text := ""
		if len(t.parts) == 1 {
			text = t.parts[0].text
		}
		return &template{raw: appendText(nil, text)}
	}
	return t
}

// closing is the offset of the } that ends an expression, looking past strings and braces.
func closing(s string) int {
	depth := 0
	var quote byte
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quote != 0:
			if c == '\\' && quote != '`' {
				i++
			} else if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'' || c == '`':
			quote = c
		case c == '{':
			depth++
		case c == '}':
			if depth == 0 {
				return i
			}
			depth--
		}
	}
	return -1
}

// append evaluates the template and appends its JSON, bounded to MaxParams in all.
func (t *template) append(b []byte, s *scope) ([]byte, error) {
	var err error
	switch {
	case t.raw != nil:
		b = append(b, t.raw...)
	case t.exact:
		b, err = t.appendExact(b, s)
	case t.parts != nil:
		b, err = t.appendText(b, s)
	default:
		b, err = t.appendItems(b, s)
	}
	if err != nil {
		return nil, err
	}
	if len(b) > MaxParams {
		return nil, fmt.Errorf("params have more than %d bytes", MaxParams)
	}
	return b, nil
}

func (t *template) appendExact(b []byte, s *scope) ([]byte, error) {
	p := t.parts[0].program
	v, err := p.run(s)
	if err != nil {
		return nil, err
	}
	raw, err := encodeValue(v, MaxParams)
	if err != nil {
		return nil, &ExprError{Expr: p.source, Message: err.Error()}
	}
	return append(b, raw...), nil
}

func (t *template) appendText(b []byte, s *scope) ([]byte, error) {
	var text strings.Builder
	for _, part := range t.parts {
		if part.program == nil {
			text.WriteString(part.text)
			continue
		}
		v, err := part.program.run(s)
		if err != nil {
			return nil, err
		}
		piece, err := toText(v)
		if err != nil {
			return nil, &ExprError{Expr: part.program.source, Message: err.Error()}
		}
		if text.WriteString(piece); text.Len() > MaxParams {
			return nil, &ExprError{Expr: part.program.source, Message: fmt.Sprintf("the text has more than %d bytes", MaxParams)}
		}
	}
	return appendText(b, text.String()), nil
}

func (t *template) appendItems(b []byte, s *scope) ([]byte, error) {
	open, end := byte('['), byte(']')
	if t.names != nil {
		open, end = '{', '}'
	}
	b = append(b, open)
	for i, item := range t.list {
		if i > 0 {
			b = append(b, ',')
		}
		if t.names != nil {
			b = append(appendText(b, t.names[i]), ':')
		}
		var err error
		if b, err = item.append(b, s); err != nil {
			return nil, err
		}
	}
	return append(b, end), nil
}
