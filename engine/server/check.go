package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

// Check looks at params when a job or a workflow with them is saved, so that what a processor
// would refuse is refused before it can fire. The processor checks again when it runs.
type Check func(params json.RawMessage) error

// checkParams applies the check of the processor, if there is one. Params that are still a
// template have their values only at run time, and are checked there.
func (s *Server) checkParams(processor string, params json.RawMessage) error {
	check := s.cfg.Checks[processor]
	if check == nil || bytes.Contains(params, []byte("${")) {
		return nil
	}
	if err := check(params); err != nil {
		return fmt.Errorf("params of processor %q: %w", processor, err)
	}
	return nil
}

// checkNodes applies the checks to every node that carries its job inline.
func (s *Server) checkNodes(d *workflow.Definition) error {
	var errs []error
	for i := range d.Nodes {
		n := &d.Nodes[i]
		if n.Spec.Processor == "" {
			continue
		}
		if err := s.checkParams(n.Spec.Processor, n.Spec.Params); err != nil {
			errs = append(errs, fmt.Errorf("node %q: %w", n.ID, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: %w", err, engine.ErrInvalid)
	}
	return nil
}
