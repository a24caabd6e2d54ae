package workflow

// MaxExpr is the largest expression, in bytes.
const MaxExpr = 2 << 10
