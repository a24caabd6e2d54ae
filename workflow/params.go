package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
)

// BindParams gives the params of one run: what the caller gave, checked against the declared
// types, and the defaults of the rest. The result is a JSON object with sorted keys, at most
// MaxParams bytes; a param that is neither given nor has a default is null. Unknown names,
// missing required params and wrong types are refused, all of them in one error.
func (d *Definition) BindParams(given map[string]json.RawMessage) (json.RawMessage, error) {
	var errs []error
	names := make([]string, 0, len(d.Params))
	for name := range d.Params {
		names = append(names, name)
	}
	sort.Strings(names)
	bound := make(map[string]json.RawMessage, len(names))
	for _, name := range names {
		p := d.Params[name]
		value, ok := given[name]
		switch {
		case ok && len(value) > 0:
			if err := checkParamValue(p.Type, value); err != nil {
				errs = append(errs, fmt.Errorf("param %q %w", name, err))
				continue
			}
		case p.Required:
			errs = append(errs, fmt.Errorf("param %q is required", name))
		default:
			value = p.Default
		}
		if len(value) == 0 {
			value = json.RawMessage("null")
		}
		bound[name] = value
	}
	var unknown []string
	for name := range given {
		if _, ok := d.Params[name]; !ok {
			unknown = append(unknown, name)
		}
	}
	sort.Strings(unknown)
	for _, name := range unknown {
		errs = append(errs, fmt.Errorf("workflow %q has no param %q%s", d.Name, clip(name), closest(name, names)))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	b, err := json.Marshal(bound)
	if err != nil {
		return nil, fmt.Errorf("encode params: %w", err)
	}
	if len(b) > MaxParams {
		return nil, fmt.Errorf("params have %d bytes, the limit is %d", len(b), MaxParams)
	}
	return b, nil
}

func typeOfParam(v any) ParamType {
	switch v.(type) {
	case string:
		return ParamString
	case int:
		return ParamInt
	case float64, json.Number:
		return ParamNumber
	case bool:
		return ParamBool
	case []any:
		return ParamList
	case map[string]any:
		return ParamObject
	}
	return ParamAny
}

// checkParamValue reports why raw is no value of type t. Null is a value of ParamAny only;
// every whole number is a ParamNumber too.
func checkParamValue(t ParamType, raw json.RawMessage) error {
	v, err := decodeValue(raw)
	if err != nil {
		return err
	}
	if t == ParamAny || typeOfParam(v) == t {
		return nil
	}
	if _, whole := v.(int); whole && t == ParamNumber {
		return nil
	}
	return fmt.Errorf("must be of type %s, not %s", t, kindOf(v))
}

// CheckNested reports what of the params of a node that nests this workflow cannot be right,
// whatever its expressions give: a param that is not declared, or a required one left out.
func (d *Definition) CheckNested(n *Node) error {
	if len(n.Spec.Params) > 0 && n.Spec.Params[0] != '{' {
		return nil // one expression gives all of them
	}
	given := map[string]json.RawMessage{}
	if len(n.Spec.Params) > 0 {
		if err := json.Unmarshal(n.Spec.Params, &given); err != nil {
			return fmt.Errorf("params: %w", err)
		}
	}
	names := slices.Sorted(maps.Keys(d.Params))
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if _, ok := d.Params[name]; !ok {
			errs = append(errs, fmt.Errorf("workflow %q has no param %q%s", d.Name, clip(name), closest(name, names)))
		}
	}
	for _, name := range names {
		if d.Params[name].Required && given[name] == nil {
			errs = append(errs, fmt.Errorf("workflow %q requires the param %q", d.Name, name))
		}
	}
	return errors.Join(errs...)
}
