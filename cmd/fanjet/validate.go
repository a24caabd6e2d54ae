package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/fanjet/fanjet/workflow"
)

type validateCmd struct {
	Output string   `short:"o" enum:"text,json" default:"text" help:"How to answer: ${enum}."`
	Files  []string `arg:"" name:"FILE" help:"Workflow files, YAML or JSON."`
}

// verdict is what validate says about one file.
type verdict struct {
	File     string            `json:"file"`
	OK       bool              `json:"ok"`
	Nodes    int               `json:"nodes"`
	Problems workflow.Problems `json:"problems"`
}

// Run checks all files and fails if one of them is broken.
func (c *validateCmd) Run(con *console) error {
	verdicts := make([]verdict, len(c.Files))
	broken := false
	for i, file := range c.Files {
		verdicts[i] = check(file)
		broken = broken || !verdicts[i].OK
	}
	if c.Output == "json" {
		enc := json.NewEncoder(con.out)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		if err := enc.Encode(verdicts); err != nil {
			return fmt.Errorf("write the verdicts: %w", err)
		}
	} else {
		writeVerdicts(con.out, verdicts)
	}
	if broken {
		return &exitError{code: exitInvalid}
	}
	return nil
}

func writeVerdicts(w io.Writer, verdicts []verdict) {
	for _, v := range verdicts {
		if v.OK {
			fmt.Fprintf(w, "%s: ok, %s\n", v.File, plural(int64(v.Nodes), "node"))
		}
		for _, p := range v.Problems {
			fmt.Fprintln(w, p)
		}
	}
}

func check(file string) verdict {
	graph, _, err := load(file)
	if err == nil {
		return verdict{File: file, OK: true, Nodes: graph.Len(), Problems: workflow.Problems{}}
	}
	var problems workflow.Problems
	if !errors.As(err, &problems) {
		problems = workflow.Problems{{File: file, Message: err.Error()}}
	}
	return verdict{File: file, Problems: problems}
}

// load reads and checks a workflow file. An error that is not of type Problems does not
// name the file.
func load(file string) (*workflow.Graph, []byte, error) {
	data, err := os.ReadFile(file)
	var pathErr *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, errors.New("there is no such file; check the path")
	case errors.As(err, &pathErr):
		return nil, nil, fmt.Errorf("the file cannot be read: %w", pathErr.Err)
	case err != nil:
		return nil, nil, err
	}
	def, err := workflow.Parse(file, data)
	if err != nil {
		return nil, nil, err
	}
	graph, err := workflow.Build(def)
	return graph, data, err
}

// loadValid is load for a command that goes on with the file.
func loadValid(file string) (*workflow.Graph, []byte, error) {
	graph, data, err := load(file)
	var problems workflow.Problems
	switch {
	case err == nil:
		return graph, data, nil
	case errors.As(err, &problems):
		return nil, nil, invalid("the workflow cannot run:\n%w", err)
	}
	return nil, nil, invalid("%s: %w", file, err)
}
