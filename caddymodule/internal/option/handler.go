package option

import (
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Handler is a handler with a directive.
type Handler interface {
	caddyhttp.MiddlewareHandler
	caddyfile.Unmarshaler
}

// AppUser is a handler that may need the fhir app, depending on its options.
type AppUser interface {
	// CheckApp returns an error if the handler cannot do without the app.
	CheckApp() error
}

// RegisterHandler registers a directive and its order relative to a standard one.
func RegisterHandler(name string, at httpcaddyfile.Positional, standard string, newHandler func() Handler) {
	httpcaddyfile.RegisterDirectiveOrder(name, at, standard)
	httpcaddyfile.RegisterHandlerDirective(name, func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		handler := newHandler()
		if written, ok := handler.(interface{ SetSource(Position) }); ok {
			h.Next()
			written.SetSource(PositionOf(h.Dispenser))
			h.Reset()
		}
		if err := handler.UnmarshalCaddyfile(h.Dispenser); err != nil {
			return nil, err
		}
		if user, ok := handler.(AppUser); ok && h.Option("fhir") == nil {
			h.Reset()
			h.Next() // so that the error names the line
			if err := user.CheckApp(); err != nil {
				return nil, h.WrapErr(err)
			}
		}
		return handler, nil
	})
}
