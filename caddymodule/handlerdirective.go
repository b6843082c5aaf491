package caddymodule

import (
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// handlerDirective is a handler with a directive.
type handlerDirective interface {
	caddyhttp.MiddlewareHandler
	caddyfile.Unmarshaler
}

// appUser is a handler that may need the fhir app, depending on its options.
type appUser interface {
	// checkApp returns an error if the handler cannot do without the app.
	checkApp() error
}

// registerHandler registers a directive and its order relative to a standard one.
func registerHandler(name string, at httpcaddyfile.Positional, standard string, newHandler func() handlerDirective) {
	httpcaddyfile.RegisterDirectiveOrder(name, at, standard)
	httpcaddyfile.RegisterHandlerDirective(name, func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		handler := newHandler()
		if written, ok := handler.(interface{ setSource(position) }); ok {
			h.Next()
			written.setSource(positionOf(h.Dispenser))
			h.Reset()
		}
		if err := handler.UnmarshalCaddyfile(h.Dispenser); err != nil {
			return nil, err
		}
		if user, ok := handler.(appUser); ok && h.Option("fhir") == nil {
			h.Reset()
			h.Next() // so that the error names the line
			if err := user.checkApp(); err != nil {
				return nil, h.WrapErr(err)
			}
		}
		return handler, nil
	})
}
