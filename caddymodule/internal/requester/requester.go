// Package requester says who makes a request, as far as Caddy and fhir_bearer know.
package requester

import (
	"context"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/httporigin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fairqueue"
)

// Network is the client's network, for bounds of all of its clients together.
func Network(ctx context.Context) string { return fairqueue.Network(IP(ctx)) }

// NetworkOf is that of a request.
func NetworkOf(r *http.Request) string { return fairqueue.Network(Address(r)) }

// IP is the client's address by Caddy; empty outside of Caddy.
func IP(ctx context.Context) string {
	address, _ := caddyhttp.GetVar(ctx, caddyhttp.ClientIPVarKey).(string)
	return address
}

// Address is the client's address. Caddy takes it from a proxy only if trusted_proxies names the proxy.
func Address(r *http.Request) string {
	if address := IP(r.Context()); address != "" {
		return address
	}
	return httporigin.Peer(r)
}

// IsHTTPS reports whether the browser speaks TLS, to us or to a proxy that Caddy's trusted_proxies names.
func IsHTTPS(r *http.Request) bool {
	return r.TLS != nil || ByTrustedProxy(r) && r.Header.Get("X-Forwarded-Proto") == "https"
}

// ByTrustedProxy reports whether a request came from a proxy that Caddy's trusted_proxies names.
func ByTrustedProxy(r *http.Request) bool {
	trusted, _ := caddyhttp.GetVar(r.Context(), caddyhttp.TrustedProxyVarKey).(bool)
	return trusted
}

// IdentityPlaceholders are those of fhir_bearer.
var IdentityPlaceholders = []string{
	"http.auth.user.id", "http.auth.user.client_id", "http.auth.user.scope", "http.auth.user.patient", "http.auth.user.fhir_user", "http.auth.user.issuer",
}
