package bearer

import (
	"net/http"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/requester"
)

// identity provides the placeholders that tell who is asking. They are looked up rather than set: few requests have a use
// for them, and six more entries double the table in which Caddy keeps what is set.
type identity struct {
	token   *guard.Token // nil: nobody is known
	probing bool         // to find out who provides a placeholder
}

// set gives a request the placeholders. Those that somebody else has provided before are set over that, so that none has a
// value of another's.
func (i *identity) set(r *http.Request) {
	repl := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	repl.Map(i.provide)
	for _, name := range requester.IdentityPlaceholders {
		if !i.isFirst(repl, name) {
			value, _ := i.provide(name)
			repl.Set(name, value)
		}
	}
}

// isFirst reports whether nobody else is asked for a placeholder before.
func (i *identity) isFirst(repl *caddy.Replacer, name string) bool {
	i.probing = true
	by, _ := repl.Get(name)
	i.probing = false
	return by == any(i)
}

// provide is a [caddy.ReplacerFunc].
func (i *identity) provide(name string) (any, bool) {
	claim := i.claim(name)
	switch {
	case claim == nil:
		return nil, false
	case i.probing:
		return i, true
	}
	return *claim, true
}

// claim is what the token has for a placeholder; nil for the name of another one.
func (i *identity) claim(name string) *string {
	token := i.token
	if token == nil {
		token = new(guard.Token)
	}
	switch name {
	case "http.auth.user.id":
		return &token.Subject
	case "http.auth.user.client_id":
		return &token.ClientID
	case "http.auth.user.scope":
		return &token.Scope
	case "http.auth.user.patient":
		return &token.Patient
	case "http.auth.user.fhir_user":
		return &token.FHIRUser
	case "http.auth.user.issuer":
		return &token.Issuer
	}
	return nil
}
