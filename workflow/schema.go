package workflow

import _ "embed"

//go:embed schema.json
var schema []byte

// Schema is the JSON Schema (draft 2020-12) of a workflow document, for editors: it knows
// every field, its type, and what the types of nodes have. Parse and Build check more. It is
// made from the types of this package by "go test ./workflow -run Schema -update".
func Schema() []byte { return append([]byte(nil), schema...) }

//go:embed documents.json
var documentSchema []byte

// DocumentSchema is the JSON Schema of a document of any kind that ParseAll reads.
func DocumentSchema() []byte { return append([]byte(nil), documentSchema...) }
