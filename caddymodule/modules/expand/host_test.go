package expand

import (
	"context"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

// All that a token says of its holder keeps the answers of servers behind us apart: what
// was asked in the context of one patient is not for another's.
func TestPrincipal(t *testing.T) {
	t.Parallel()
	var host expandHost
	names := []string{"id", "client_id", "scope", "patient", "fhir_user", "issuer"}
	requestOf := func(other string) context.Context {
		replacer := caddy.NewReplacer()
		for _, name := range names {
			replacer.Set("http.auth.user."+name, "a")
		}
		if other != "" {
			replacer.Set("http.auth.user."+other, "b")
		}
		return context.WithValue(t.Context(), caddy.ReplacerCtxKey, replacer)
	}
	for _, name := range names {
		if host.Principal(requestOf(name)) == host.Principal(requestOf("")) {
			t.Errorf("%s makes no difference", name)
		}
	}
	if host.Client(requestOf("patient")) != host.Client(requestOf("")) {
		t.Error("answers that are the same for all are kept for each patient")
	}
}
