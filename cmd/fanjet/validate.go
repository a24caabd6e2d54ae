package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/fanjet/fanjet/workflow"
)

type validateCmd struct {
	outputFlag
	Files []string `arg:"" name:"FILE" help:"Files of definitions, YAML or JSON; folders of them; - is the standard input."`

	in io.Reader
}

// verdict is what validate says about one file.
type verdict struct {
	File      string            `json:"file"`
	OK        bool              `json:"ok"`
	Documents int               `json:"documents"`
	Nodes     int               `json:"nodes"` // of its workflows
	Problems  workflow.Problems `json:"problems"`
}

// Run checks all files and fails if one of them is broken.
func (c *validateCmd) Run(con *console) error {
	set := readDocuments(c.Files, "", c.in)
	set.check()
	verdicts := make([]verdict, len(set.files))
	broken := false
	for i, file := range set.files {
		verdicts[i] = set.verdict(file)
		broken = broken || !verdicts[i].OK
	}
	err := c.write(con.out, verdicts, func(w io.Writer) { writeVerdicts(w, verdicts) })
	if err == nil && broken {
		return &exitError{code: exitInvalid}
	}
	return err
}

func writeVerdicts(w io.Writer, verdicts []verdict) {
	for _, v := range verdicts {
		switch {
		case v.OK && v.Documents == 1 && v.Nodes > 0:
			fmt.Fprintf(w, "%s: ok, %s\n", v.File, plural(int64(v.Nodes), "node"))
		case v.OK:
			fmt.Fprintf(w, "%s: ok, %s\n", v.File, plural(int64(v.Documents), "document"))
		}
		for _, p := range v.Problems {
			fmt.Fprintln(w, p)
		}
	}
}

// load reads and checks a workflow file. An error that is not of type Problems does not
// name the file.
func load(file string) (*workflow.Graph, []byte, error) {
	data, err := readFile(file)
	if err != nil {
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
