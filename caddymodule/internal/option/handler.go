package option

import (
	"fmt"
	"maps"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Handler is an HTTP handler that has a directive.
type Handler interface {
	caddyhttp.MiddlewareHandler
	caddyfile.Unmarshaler
}

// FHIRAppDependent is a handler that may require the fhir app, depending on its options.
type FHIRAppDependent interface {
	// CheckApp returns an error if the handler requires the fhir app.
	CheckApp() error
}

// RegisterHandler registers a directive and its order relative to a standard directive.
func RegisterHandler(name string, at httpcaddyfile.Positional, standard string, newHandler func() Handler) {
	httpcaddyfile.RegisterDirectiveOrder(name, at, standard)
	httpcaddyfile.RegisterHandlerDirective(name, func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		handler := newHandler()
		if withSource, ok := handler.(interface{ SetSource(Position) }); ok {
			h.Next()
			withSource.SetSource(PositionOf(h.Dispenser))
			h.Reset()
		}
		if err := handler.UnmarshalCaddyfile(h.Dispenser); err != nil {
			return nil, err
		}
		if user, ok := handler.(FHIRAppDependent); ok && h.Option("fhir") == nil {
			h.Reset()
			h.Next() // before parsing, so that errors contain the line
			if err := user.CheckApp(); err != nil {
				return nil, h.WrapErr(err)
			}
		}
		return handler, nil
	})
}

// Position is a line of the Caddyfile, for errors that can be detected only after later lines have been parsed.
type Position struct {
	file string
	line int
}

// PositionOf returns the current line of the parser.
func PositionOf(d *caddyfile.Dispenser) Position { return Position{d.File(), d.Line()} }

// Wrap is like [caddyfile.Dispenser.WrapErr] but adds this position.
func (p Position) Wrap(err error) error { return fmt.Errorf("%w, at %s:%d", err, p.file, p.line) }

// Source contains the position of a handler in the Caddyfile, for errors and warnings about the adapted JSON.
type Source struct {
	// The Caddyfile and the line of the directive, for warnings and errors. Default: none (they contain only the site).
	Source string `json:"source,omitempty"`
}

// SetSource sets the position of the handler.
func (s *Source) SetSource(p Position) { s.Source = fmt.Sprintf("%s:%d", p.file, p.line) }

// Wrap adds the handler's position to an error.
func (s *Source) Wrap(err error) error {
	if err == nil || s.Source == "" {
		return err
	}
	return fmt.Errorf("%w, at %s", err, s.Source)
}

// A Feature is a Caddy module that adds subdirectives to a block of the core. The core finds it by namespace and does not
// import it.
type Feature interface {
	caddy.Module

	// Subdirectives returns the subdirectives that configure this feature and the names of those that are repeatable.
	Subdirectives() (fields Block, repeatable []string)
}

// Features contains the features of a namespace while one block is parsed.
type Features struct {
	repeatable []string
	configured map[string]Feature
}

// Features adds the subdirectives of all features in a namespace to the block. A feature is configured if the block contains at
// least one of its subdirectives.
func (s Block) Features(namespace string) *Features {
	f := &Features{configured: map[string]Feature{}}
	for _, info := range caddy.GetModules(namespace) {
		feature, ok := info.New().(Feature)
		if !ok {
			continue
		}
		fields, repeatable := feature.Subdirectives()
		f.repeatable = append(f.repeatable, repeatable...)
		for name, set := range fields {
			s[name] = func(d *caddyfile.Dispenser) error {
				f.configured[info.ID.Name()] = feature
				return set(d)
			}
		}
	}
	return f
}

// Repeatable returns the names of the features' repeatable subdirectives, followed by more.
func (f *Features) Repeatable(more ...string) []string { return slices.Concat(f.repeatable, more) }

// Configured returns the configured features, sorted by name.
func (f *Features) Configured() []Feature {
	var configured []Feature
	for _, name := range slices.Sorted(maps.Keys(f.configured)) {
		configured = append(configured, f.configured[name])
	}
	return configured
}

// Raw returns the JSON of the configured features by module name, or nil if there are none.
func (f *Features) Raw() caddy.ModuleMap {
	var raw caddy.ModuleMap
	for name, feature := range f.configured {
		if raw == nil {
			raw = caddy.ModuleMap{}
		}
		raw[name] = caddyconfig.JSON(feature, nil)
	}
	return raw
}
