package workflow

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxString bounds every text that an expression builds, in bytes.
const maxString = MaxParams

// arity is how many arguments a function takes.
type arity struct{ min, max int }

// functions are what an expression may call.
var functions = map[string]arity{
	"len": {1, 1}, "lower": {1, 1}, "upper": {1, 1}, "trim": {1, 1}, "hasPrefix": {2, 2}, "hasSuffix": {2, 2},
	"indexOf": {2, 2}, "int": {1, 1}, "float": {1, 1}, "string": {1, 1}, "abs": {1, 1}, "min": {1, 20}, "max": {1, 20},
	"get": {2, 2}, "keys": {1, 1},
}

var functionNames = func() []string {
	names := make([]string, 0, len(functions))
	for name := range functions {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}()

// operations is everything a guarded expression can do: the functions, and under names that
// no expression can spell the operators. An operation never keeps its argument slice.
var operations = map[string]func(args ...any) (any, error){
	"_bool":           asBool,
	"_member":         member,
	"_equal":          func(a ...any) (any, error) { return equal(a[0], a[1]) },
	"_unequal":        func(a ...any) (any, error) { same, err := equal(a[0], a[1]); return !same, err },
	"_less":           ordered(func(c int) bool { return c < 0 }),
	"_lessOrEqual":    ordered(func(c int) bool { return c <= 0 }),
	"_greater":        ordered(func(c int) bool { return c > 0 }),
	"_greaterOrEqual": ordered(func(c int) bool { return c >= 0 }),
	"_add":            addValues,
	"_subtract": func(a ...any) (any, error) {
		return calculate("subtract", a[0], a[1], subtractInts, func(x, y float64) float64 { return x - y })
	},
	"_multiply": func(a ...any) (any, error) {
		return calculate("multiply", a[0], a[1], multiplyInts, func(x, y float64) float64 { return x * y })
	},
	"_divide":    divide,
	"_remainder": remainder,
	"_in":        contained,
	"_contains":  texts("contains", strings.Contains),
	"hasPrefix":  texts("hasPrefix", strings.HasPrefix),
	"hasSuffix":  texts("hasSuffix", strings.HasSuffix),
	"indexOf":    indexOf,
	"len":        length,
	"lower":      changed("lower", strings.ToLower),
	"upper":      changed("upper", strings.ToUpper),
	"trim":       changed("trim", strings.TrimSpace),
	"int":        toInt,
	"float":      toFloat,
	"string":     func(a ...any) (any, error) { return toText(a[0]) },
	"abs":        absolute,
	"min":        extreme(-1),
	"max":        extreme(1),
	"get":        get,
	"keys":       keys,
}

func asBool(a ...any) (any, error) {
	b, ok := a[0].(bool)
	if !ok {
		return nil, fmt.Errorf("a bool is needed here, not a value of type %s", kindOf(a[0]))
	}
	return b, nil
}

// member is a.b and a["b"] and a[1]; what is not there is an error.
func member(a ...any) (any, error) {
	switch of := a[0].(type) {
	case nil:
		return nil, fmt.Errorf("null has no member %s; use ?. or get() where a value may be missing", show(a[1]))
	case map[string]any:
		key, ok := a[1].(string)
		if !ok {
			return nil, fmt.Errorf("the key of an object must be a string, not %s", kindOf(a[1]))
		}
		v, ok := of[key]
		if !ok {
			return nil, fmt.Errorf("there is no key %s; use ?. or get() where it may be missing", show(key))
		}
		return v, nil
	case []any:
		i, ok := a[1].(int)
		if !ok {
			return nil, fmt.Errorf("the index of a list must be an int, not %s", kindOf(a[1]))
		}
		if i < 0 {
			i += len(of)
		}
		if i < 0 || i >= len(of) {
			return nil, fmt.Errorf("index %d is outside a list of %d", a[1], len(of))
		}
		return of[i], nil
	}
	return nil, fmt.Errorf("a value of type %s has no member %s", kindOf(a[0]), show(a[1]))
}

// get is member, with null for what is not there.
func get(a ...any) (any, error) {
	switch of := a[0].(type) {
	case nil:
		return nil, nil
	case map[string]any:
		if key, ok := a[1].(string); ok {
			return of[key], nil
		}
	case []any:
		if i, ok := a[1].(int); ok && (i >= len(of) || i < -len(of)) {
			return nil, nil
		}
	}
	return member(a...)
}

func show(v any) string {
	switch v := v.(type) {
	case string:
		return strconv.Quote(clip(v))
	case nil:
		return "null"
	case int, float64, bool:
		return fmt.Sprint(v)
	}
	return "of type " + kindOf(v)
}

// equal compares two values of one kind; null compares with everything. Values of different
// kinds are an error, because a false that means "never" hides a mistake.
func equal(a, b any) (bool, error) {
	if a != nil && b != nil && family(a) != family(b) {
		return false, fmt.Errorf("%s and %s cannot be compared", kindOf(a), kindOf(b))
	}
	return same(a, b), nil
}

// family is the kind of a value with all numbers in one.
func family(v any) string {
	switch v.(type) {
	case int, float64, json.Number:
		return "number"
	}
	return kindOf(v)
}

// same compares deeply; different kinds are different.
func same(a, b any) bool {
	switch x := a.(type) {
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, same)
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for k, v := range x {
			if w, ok := y[k]; !ok || !same(v, w) {
				return false
			}
		}
		return true
	case int, float64:
		if c, ok := compareNumbers(a, b); ok {
			return c == 0
		}
		return false
	}
	switch b.(type) {
	case []any, map[string]any:
		return false
	}
	return a == b
}

// compareNumbers compares exactly, also a large int with a float64.
func compareNumbers(a, b any) (int, bool) {
	switch x := a.(type) {
	case int:
		switch y := b.(type) {
		case int:
			return cmp.Compare(x, y), true
		case float64:
			return new(big.Float).SetInt64(int64(x)).Cmp(big.NewFloat(y)), true
		}
	case float64:
		switch y := b.(type) {
		case int:
			return big.NewFloat(x).Cmp(new(big.Float).SetInt64(int64(y))), true
		case float64:
			return cmp.Compare(x, y), true
		}
	}
	return 0, false
}

func compare(a, b any) (int, error) {
	if c, ok := compareNumbers(a, b); ok {
		return c, nil
	}
	x, ok1 := a.(string)
	y, ok2 := b.(string)
	if ok1 && ok2 {
		return cmp.Compare(x, y), nil
	}
	return 0, fmt.Errorf("%s and %s cannot be ordered", kindOf(a), kindOf(b))
}

func ordered(test func(int) bool) func(...any) (any, error) {
	return func(a ...any) (any, error) {
		c, err := compare(a[0], a[1])
		if err != nil {
			return nil, err
		}
		return test(c), nil
	}
}

func addValues(a ...any) (any, error) {
	x, ok1 := a[0].(string)
	y, ok2 := a[1].(string)
	if ok1 && ok2 {
		if len(x)+len(y) > maxString {
			return nil, fmt.Errorf("the text has %d bytes, the limit is %d", len(x)+len(y), maxString)
		}
		return x + y, nil
	}
	return calculate("add", a[0], a[1], addInts, func(x, y float64) float64 { return x + y })
}

func addInts(x, y int) (int, bool) {
	z := x + y
	return z, (z > x) == (y > 0)
}

func subtractInts(x, y int) (int, bool) {
	z := x - y
	return z, (z < x) == (y > 0)
}

func multiplyInts(x, y int) (int, bool) {
	if x == 0 || y == 0 {
		return 0, true
	}
	z := x * y
	return z, z/y == x && !(x == -1 && y == math.MinInt) && !(y == -1 && x == math.MinInt)
}

func calculate(verb string, a, b any, ints func(x, y int) (int, bool), floats func(x, y float64) float64) (any, error) {
	x, ok1 := a.(int)
	y, ok2 := b.(int)
	if ok1 && ok2 {
		z, ok := ints(x, y)
		if !ok {
			return nil, fmt.Errorf("cannot %s %d and %d: the result is beyond 64 bits", verb, x, y)
		}
		return z, nil
	}
	f, ok1 := asFloat(a)
	g, ok2 := asFloat(b)
	if !ok1 || !ok2 {
		return nil, fmt.Errorf("cannot %s %s and %s", verb, kindOf(a), kindOf(b))
	}
	return finite(floats(f, g))
}

func asFloat(v any) (float64, bool) {
	switch v := v.(type) {
	case int:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

func finite(f float64) (any, error) {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return nil, errors.New("the result is beyond the range of numbers")
	}
	return f, nil
}

// divide is exact for ints without a remainder, a fraction otherwise.
func divide(a ...any) (any, error) {
	f, ok1 := asFloat(a[0])
	g, ok2 := asFloat(a[1])
	if !ok1 || !ok2 {
		return nil, fmt.Errorf("cannot divide %s and %s", kindOf(a[0]), kindOf(a[1]))
	}
	if g == 0 {
		return nil, errors.New("division by zero")
	}
	x, ok1 := a[0].(int)
	y, ok2 := a[1].(int)
	if ok1 && ok2 && y != -1 && x%y == 0 {
		return x / y, nil
	}
	return finite(f / g)
}

func remainder(a ...any) (any, error) {
	x, ok1 := a[0].(int)
	y, ok2 := a[1].(int)
	switch {
	case !ok1 || !ok2:
		return nil, fmt.Errorf("a remainder needs two ints, not %s and %s", kindOf(a[0]), kindOf(a[1]))
	case y == 0:
		return nil, errors.New("division by zero")
	case y == -1: // math.MinInt % -1 overflows
		return 0, nil
	}
	return x % y, nil
}

func contained(a ...any) (any, error) {
	switch of := a[1].(type) {
	case []any:
		return slices.ContainsFunc(of, func(item any) bool { return same(item, a[0]) }), nil
	case map[string]any:
		key, ok := a[0].(string)
		if !ok {
			return nil, fmt.Errorf("the key of an object must be a string, not %s", kindOf(a[0]))
		}
		_, ok = of[key]
		return ok, nil
	}
	return nil, fmt.Errorf("in needs a list or an object, not %s", kindOf(a[1]))
}

func texts(name string, test func(x, y string) bool) func(...any) (any, error) {
	return func(a ...any) (any, error) {
		x, ok1 := a[0].(string)
		y, ok2 := a[1].(string)
		if !ok1 || !ok2 {
			return nil, fmt.Errorf("%s needs two strings, not %s and %s", name, kindOf(a[0]), kindOf(a[1]))
		}
		return test(x, y), nil
	}
}

// indexOf counts characters, as len does; -1 is not found.
func indexOf(a ...any) (any, error) {
	x, ok1 := a[0].(string)
	y, ok2 := a[1].(string)
	if !ok1 || !ok2 {
		return nil, fmt.Errorf("indexOf needs two strings, not %s and %s", kindOf(a[0]), kindOf(a[1]))
	}
	i := strings.Index(x, y)
	if i > 0 {
		i = utf8.RuneCountInString(x[:i])
	}
	return i, nil
}

func length(a ...any) (any, error) {
	switch v := a[0].(type) {
	case string:
		return utf8.RuneCountInString(v), nil
	case []any:
		return len(v), nil
	case map[string]any:
		return len(v), nil
	}
	return nil, fmt.Errorf("len needs a string, a list or an object, not %s", kindOf(a[0]))
}

func changed(name string, f func(string) string) func(...any) (any, error) {
	return func(a ...any) (any, error) {
		s, ok := a[0].(string)
		if !ok {
			return nil, fmt.Errorf("%s needs a string, not %s", name, kindOf(a[0]))
		}
		if len(s) > maxString {
			return nil, fmt.Errorf("the text has %d bytes, the limit of %s is %d", len(s), name, maxString)
		}
		return f(s), nil
	}
}

// toInt cuts the fraction of a number and reads a text that is a whole number.
func toInt(a ...any) (any, error) {
	switch v := a[0].(type) {
	case int:
		return v, nil
	case float64:
		if v >= -1<<63 && v < 1<<63 {
			return int(v), nil
		}
		return nil, errors.New("the number is beyond 64 bits")
	case string:
		i, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s is not a whole number of 64 bits", show(v))
		}
		return int(i), nil
	}
	return nil, fmt.Errorf("int needs a number or a string, not %s", kindOf(a[0]))
}

func toFloat(a ...any) (any, error) {
	switch v := a[0].(type) {
	case int, float64:
		f, _ := asFloat(v)
		return f, nil
	case string:
		f, err := strconv.ParseFloat(v, 64)
		if err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
			return nil, fmt.Errorf("%s is not a number", show(v))
		}
		return f, nil
	}
	return nil, fmt.Errorf("float needs a number or a string, not %s", kindOf(a[0]))
}

// toText is a value inside a text: a string as it is, everything else as JSON.
func toText(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case int:
		return strconv.Itoa(v), nil
	case bool:
		return strconv.FormatBool(v), nil
	case nil:
		return "", errors.New("null cannot be put into a text; give a value for it with ??")
	}
	b, err := encodeValue(v, maxString)
	return string(b), err
}

func absolute(a ...any) (any, error) {
	switch v := a[0].(type) {
	case int:
		if v == math.MinInt {
			return nil, errors.New("the result is beyond 64 bits")
		}
		return max(v, -v), nil
	case float64:
		return math.Abs(v), nil
	}
	return nil, fmt.Errorf("abs needs a number, not %s", kindOf(a[0]))
}

func extreme(sign int) func(...any) (any, error) {
	return func(a ...any) (any, error) {
		best := a[0]
		for _, v := range a {
			c, ok := compareNumbers(v, best)
			if !ok {
				return nil, fmt.Errorf("min and max need numbers, not %s", kindOf(v))
			}
			if c*sign > 0 {
				best = v
			}
		}
		return best, nil
	}
}

func keys(a ...any) (any, error) {
	of, ok := a[0].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("keys needs an object, not %s", kindOf(a[0]))
	}
	names := make([]string, 0, len(of))
	for k := range of {
		names = append(names, k)
	}
	slices.Sort(names)
	list := make([]any, len(names))
	for i, n := range names {
		list[i] = n
	}
	return list, nil
}
