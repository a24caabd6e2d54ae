package workflow

import "github.com/expr-lang/expr/ast"

// The kinds of what an expression gives.
const (
	formBool   = "bool"
	formString = "string"
	formNumber = "number"
	formOther  = "other" // null, a list or an object: never a choice
)

// formOf is the kind of what an expression gives, as far as its form alone tells; empty if
// only its values do.
func formOf(n ast.Node) string {
	switch n := n.(type) {
	case *ast.BoolNode:
		return formBool
	case *ast.StringNode:
		return formString
	case *ast.IntegerNode, *ast.FloatNode:
		return formNumber
	case *ast.NilNode, *ast.ArrayNode, *ast.MapNode:
		return formOther
	case *ast.ChainNode:
		return formOf(n.Node)
	case *ast.UnaryNode:
		if n.Operator == "-" {
			return formNumber
		}
		return formBool
	case *ast.BinaryNode:
		return formOfOperator(n.Operator)
	case *ast.ConditionalNode:
		if a := formOf(n.Exp1); a == formOf(n.Exp2) {
			return a
		}
	case *ast.CallNode:
		if callee, ok := n.Callee.(*ast.IdentifierNode); ok {
			return formOfFunction(callee.Value)
		}
	case *ast.BuiltinNode:
		return formOfFunction(n.Name)
	}
	return ""
}

func formOfOperator(operator string) string {
	switch operator {
	case "==", "!=", "<", "<=", ">", ">=", "in", "contains", "startsWith", "endsWith", "&&", "and", "||", "or":
		return formBool
	case "-", "*", "/", "%":
		return formNumber
	}
	return "" // + adds numbers and texts, ?? gives either side
}

func formOfFunction(name string) string {
	switch name {
	case "hasPrefix", "hasSuffix":
		return formBool
	case "lower", "upper", "trim", "string":
		return formString
	case "len", "indexOf", "int", "float", "abs":
		return formNumber
	case "keys":
		return formOther
	}
	return ""
}

// formOfChoice is the kind of a choice.
func formOfChoice(c Choice) string {
	switch {
	case isBool(c):
		return formBool
	case len(c) > 0 && c[0] == '"':
		return formString
	}
	return formNumber
}
