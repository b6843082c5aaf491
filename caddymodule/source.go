package caddymodule

import "fmt"

// Source is where a handler is written, for what is found when the Caddyfile is JSON,
// and has no lines any more.
type Source struct {
	// The Caddyfile and the line of the directive. Warnings and errors name it.
	// Default: they name the site alone.
	Source string `json:"source,omitempty"`
}

func (s *Source) setSource(p position) { s.Source = fmt.Sprintf("%s:%d", p.file, p.line) }

// wrap has an error name where the handler is written.
func (s *Source) wrap(err error) error {
	if err == nil || s.Source == "" {
		return err
	}
	return fmt.Errorf("%w, at %s", err, s.Source)
}

// site names a site, and where in it the handler is written.
func (s *Source) site(at place) string {
	if s.Source == "" {
		return at.String()
	}
	return s.Source + " (" + at.String() + ")"
}

// named is a handler in a warning.
type named struct{ directive, site string }

func (s *Source) named(directive string, at place) named { return named{directive, s.site(at)} }
