package caddymodule

import (
	"context"
	"net/http/httptest"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Who a request is counted under is what Caddy takes for the client, which knows
// the trusted proxies, and never what the request says of itself.
func TestClientAddress(t *testing.T) {
	tests := []struct {
		name string
		vars map[string]any
		want string
	}{
		{"as Caddy has it", map[string]any{caddyhttp.ClientIPVarKey: "198.51.100.7"}, "198.51.100.7"},
		{"without Caddy", map[string]any{}, "192.0.2.1"},
		{"of another type", map[string]any{caddyhttp.ClientIPVarKey: 7}, "192.0.2.1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/", nil) // from 192.0.2.1:1234
			for _, name := range []string{"X-Forwarded-For", "X-Real-IP", "Forwarded", "True-Client-IP"} {
				r.Header.Set(name, "203.0.113.9")
			}
			r = r.WithContext(context.WithValue(r.Context(), caddyhttp.VarsCtxKey, tt.vars))
			if got := clientAddress(r); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// Made-up opaque tokens count for the network of Caddy's client, and for no other.
func TestIntrospectorNetwork(t *testing.T) {
	h := &Bearer{Introspection: &Introspection{Endpoint: "https://idp.example/introspect", ClientID: "g", ClientSecret: "s", Audience: anyAudience}}
	i, err := h.newIntrospector(nil)
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]string{
		"198.51.100.7":        "198.51.100.7",
		"2001:db8:1:2:3:4::5": "2001:db8:1:2::/64",
		"":                    "",
	} {
		ctx := context.WithValue(t.Context(), caddyhttp.VarsCtxKey, map[string]any{caddyhttp.ClientIPVarKey: address})
		if got := i.Network(ctx); got != want {
			t.Errorf("%q counts as %q", address, got)
		}
	}
}
