package option

import (
	"fmt"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// Position is a line of the Caddyfile, for errors that only later lines reveal.
type Position struct {
	file string
	line int
}

// PositionOf returns the line that is read.
func PositionOf(d *caddyfile.Dispenser) Position { return Position{d.File(), d.Line()} }

// Wrap is [caddyfile.Dispenser.WrapErr] for the position.
func (p Position) Wrap(err error) error { return fmt.Errorf("%w, at %s:%d", err, p.file, p.line) }

// Source is where a handler is written in the Caddyfile, for errors and warnings after it has become JSON.
type Source struct {
	// The Caddyfile and the line of the directive, which warnings and errors name. Default: they name the site alone.
	Source string `json:"source,omitempty"`
}

// SetSource says where the handler is written.
func (s *Source) SetSource(p Position) { s.Source = fmt.Sprintf("%s:%d", p.file, p.line) }

// Wrap adds the handler's place to an error.
func (s *Source) Wrap(err error) error {
	if err == nil || s.Source == "" {
		return err
	}
	return fmt.Errorf("%w, at %s", err, s.Source)
}
