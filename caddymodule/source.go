package caddymodule

import (
	"fmt"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// position is a line of the Caddyfile, for errors that only later lines reveal.
type position struct {
	file string
	line int
}

func positionOf(d *caddyfile.Dispenser) position { return position{d.File(), d.Line()} }

// wrap is [caddyfile.Dispenser.WrapErr] for the position.
func (p position) wrap(err error) error { return fmt.Errorf("%w, at %s:%d", err, p.file, p.line) }

// Source is where a handler is written in the Caddyfile, for errors and warnings after it has become JSON.
type Source struct {
	// The Caddyfile and the line of the directive, which warnings and errors name. Default: they name the site alone.
	Source string `json:"source,omitempty"`
}

func (s *Source) setSource(p position) { s.Source = fmt.Sprintf("%s:%d", p.file, p.line) }

// wrap adds the handler's place to an error.
func (s *Source) wrap(err error) error {
	if err == nil || s.Source == "" {
		return err
	}
	return fmt.Errorf("%w, at %s", err, s.Source)
}
