package bearer

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/requester"
)

func TestIdentityIsOursAlone(t *testing.T) {
	t.Parallel()
	forged := func(string) (any, bool) { return "forged", true }
	for _, tt := range []struct {
		name   string
		before func(*caddy.Replacer)
		token  *guard.Token
		want   string // of all placeholders, joined
	}{
		{"nobody before", func(*caddy.Replacer) {}, identityToken, "1 app user/*.rs 2 Practitioner/1 https://issuer.example"},
		{"no token", func(*caddy.Replacer) {}, nil, "     "},
		{"set before", func(r *caddy.Replacer) {
			for _, name := range requester.IdentityPlaceholders {
				r.Set(name, "forged")
			}
		}, identityToken, "1 app user/*.rs 2 Practitioner/1 https://issuer.example"},
		{"one set before, and no token", func(r *caddy.Replacer) { r.Set("http.auth.user.scope", "forged") }, nil, "     "},
		{"provided before", func(r *caddy.Replacer) { r.Map(forged) }, identityToken, "1 app user/*.rs 2 Practitioner/1 https://issuer.example"},
		{"provided before, and no token", func(r *caddy.Replacer) { r.Map(forged) }, nil, "     "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			repl := caddy.NewReplacer()
			tt.before(repl)
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r = r.WithContext(context.WithValue(r.Context(), caddy.ReplacerCtxKey, repl))
			(&identity{token: &guard.Token{Subject: "earlier", ClientID: "earlier", Scope: "earlier"}}).set(r)
			(&identity{token: tt.token}).set(r)
			all := "{http.auth.user.id} {http.auth.user.client_id} {http.auth.user.scope} {http.auth.user.patient} {http.auth.user.fhir_user} {http.auth.user.issuer}"
			if got := repl.ReplaceAll(all, ""); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

var identityToken = &guard.Token{
	Subject: "1", ClientID: "app", Scope: "user/*.rs", Patient: "2", FHIRUser: "Practitioner/1", Issuer: "https://issuer.example",
}
