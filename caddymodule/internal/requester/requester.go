// Package requester identifies the sender of a request from data that Caddy and fhir_bearer provide.
package requester

import (
	"context"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/httporigin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fairqueue"
)

// Network returns the network of the client, for limits that all clients in the network share.
func Network(ctx context.Context) string { return fairqueue.Network(IP(ctx)) }

// NetworkOf returns the network of the client that sent a request.
func NetworkOf(r *http.Request) string { return fairqueue.Network(Address(r)) }

// IP returns the client's address as determined by Caddy, or "" outside of Caddy.
func IP(ctx context.Context) string {
	address, _ := caddyhttp.GetVar(ctx, caddyhttp.ClientIPVarKey).(string)
	return address
}

// Address returns the client's address. Caddy takes it from a proxy's header only if trusted_proxies contains the proxy.
func Address(r *http.Request) string {
	if address := IP(r.Context()); address != "" {
		return address
	}
	return httporigin.PeerIP(r)
}

// IsHTTPS reports whether the browser uses TLS, either directly or to a proxy that is listed in Caddy's trusted_proxies.
func IsHTTPS(r *http.Request) bool {
	return r.TLS != nil || IsFromTrustedProxy(r) && r.Header.Get("X-Forwarded-Proto") == "https"
}

// IsFromTrustedProxy reports whether a proxy that is listed in Caddy's trusted_proxies sent the request.
func IsFromTrustedProxy(r *http.Request) bool {
	trusted, _ := caddyhttp.GetVar(r.Context(), caddyhttp.TrustedProxyVarKey).(bool)
	return trusted
}

// IdentityPlaceholders are the placeholders that fhir_bearer sets.
var IdentityPlaceholders = []string{
	"http.auth.user.id", "http.auth.user.client_id", "http.auth.user.scope", "http.auth.user.patient", "http.auth.user.fhir_user", "http.auth.user.issuer",
}
