// Package strict decodes the params of built-in processors.
package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// Decode reads one JSON value into p. Fields that p has not, nothing at all, and anything
// that follows are errors.
func Decode(raw []byte, p any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(p); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("there are none")
		}
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON object")
	}
	return nil
}
