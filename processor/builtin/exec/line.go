package exec

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/fanjet/fanjet/processor/builtin/internal/child"
)

// Types of lines.
const (
	typeHello      = "hello"
	typeTask       = "task"
	typeValue      = "value"
	typeShare      = "share"
	typeEnd        = "end"
	typeCancel     = "cancel"
	typeMap        = "map"
	typeCheckpoint = "checkpoint"
	typeLog        = "log"
	typeProgress   = "progress"
	typeResult     = "result"
	typeError      = "error"
)

// said is a line of the program.
type said struct {
	Type string `json:"type"`
	ID   int64  `json:"id"`

	Protocol   int         `json:"protocol"`
	Processors []announced `json:"processors"`

	Name    string            `json:"name"`
	Items   []json.RawMessage `json:"items"`
	Value   json.RawMessage   `json:"value"`
	Level   string            `json:"level"`
	Text    string            `json:"text"`
	Done    float64           `json:"done"`
	Total   float64           `json:"total"`
	Message string            `json:"message"`
	Final   bool              `json:"final"`
	Retry   int64             `json:"retry_after_ms"`
}

// announced is a processor of a hello.
type announced struct {
	Name   string `json:"name"`
	Reduce bool   `json:"reduce"`
	Pre    bool   `json:"pre"`
	Post   bool   `json:"post"`
}

// order is a task as it is given to the program.
type order struct {
	Type       string          `json:"type"`
	ID         int64           `json:"id"`
	Processor  string          `json:"processor"`
	Step       string          `json:"step"`
	Mode       string          `json:"mode"`
	App        string          `json:"app"`
	Job        string          `json:"job,omitempty"`
	Instance   int64           `json:"instance,string"`
	Attempt    int             `json:"attempt"`
	Number     int64           `json:"number"`
	TaskTry    int             `json:"task_attempt"`
	Key        string          `json:"key,omitempty"`
	Name       string          `json:"name,omitempty"`
	Workflow   int64           `json:"workflow,string,omitempty"`
	Node       string          `json:"node,omitempty"`
	Scheduled  string          `json:"scheduled_at,omitempty"`
	Shard      *int            `json:"shard,omitempty"`
	Shards     int             `json:"shards,omitempty"`
	Timeout    int64           `json:"timeout_ms,omitempty"`
	Params     json.RawMessage `json:"params,omitempty"`
	Checkpoint json.RawMessage `json:"checkpoint,omitempty"`
	Item       json.RawMessage `json:"item,omitempty"`
	ItemBytes  []byte          `json:"item_base64,omitempty"`
}

// input is a line that follows a task, or cancels it.
type input struct {
	Type   string          `json:"type"`
	ID     int64           `json:"id"`
	Value  json.RawMessage `json:"value,omitempty"`
	Bytes  []byte          `json:"value_base64,omitempty"`
	Index  *int            `json:"index,omitempty"`
	Worker string          `json:"worker,omitempty"`
	OK     bool            `json:"ok,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  string          `json:"error,omitempty"`
	Total  *int64          `json:"total,omitempty"`
	Failed *int64          `json:"failed,omitempty"`
	Reason string          `json:"reason,omitempty"`
}

// protocolError says that the program broke the protocol; it cannot be used any more.
type protocolError struct{ text string }

func (e *protocolError) Error() string { return e.text }

func broken(format string, args ...any) error { return &protocolError{fmt.Sprintf(format, args...)} }

var errClosed = errors.New("the program closed its output")

// readLine reads one line of at most maxLine bytes.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > maxLine {
			return nil, broken("the program wrote a line of more than %d bytes; it begins with %q", maxLine, snippet(append(line, part...)))
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return bytes.TrimRight(line, "\r\n"), nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil
		default:
			return nil, errClosed
		}
	}
}

// parse reads a line of the program.
func parse(line []byte) (*said, error) {
	s := &said{}
	if len(line) == 0 || line[0] != '{' || json.Unmarshal(line, s) != nil {
		why := ""
		if err := json.Unmarshal(line, &json.RawMessage{}); err == nil && len(line) > 0 && line[0] == '{' {
			why = " of this protocol" // JSON, but a field has another type
		}
		return nil, broken("the program wrote a line that is no JSON object%s: %q; what is for people belongs to standard error", why, snippet(line))
	}
	return s, nil
}

func snippet(line []byte) string { return child.Clean(line[:min(len(line), 200)]) }
