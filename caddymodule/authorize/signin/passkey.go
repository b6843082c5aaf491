package signin

import (
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/factor"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// passkeySignIn signs people in by passkeys.
type passkeySignIn struct {
	accounts *people.Accounts
	passkeys *factor.Passkeys // nil: there can be none
}

// usable reports whether people can sign in for a request with a passkey.
func (k *passkeySignIn) usable(req *Request) bool {
	return k.passkeys != nil && k.accounts.Ways(req.To.Providers).Local
}

// challenge begins a sign-in by passkey; nil if there is none to sign in with.
func (k *passkeySignIn) challenge(w http.ResponseWriter, r *http.Request, req *Request) (*factor.Ceremony, error) {
	if !k.usable(req) {
		return nil, nil
	}
	used, err := k.passkeys.InUse(r.Context())
	if err != nil || !used {
		return nil, err
	}
	return k.passkeys.BeginSignIn(w, r)
}

// answered returns who answered a challenge.
func (k *passkeySignIn) answered(r *http.Request, req *Request, p oauth2.Parameters) (*factor.Answered, error) {
	if !k.usable(req) {
		return new(factor.Answered), factor.ErrPasskey
	}
	return k.passkeys.SignIn(r, p.Get("passkey"), p.Get("assertion"))
}

// passkeyPrompt is a challenge as pages show it; nil for none.
func passkeyPrompt(c *factor.Ceremony) *page.Passkey {
	if c == nil {
		return nil
	}
	return &page.Passkey{Options: c.Options, Sealed: c.Sealed}
}

// passkeyScript is the script of a page with a challenge.
func passkeyScript(challenge *page.Passkey) string {
	if challenge == nil {
		return ""
	}
	return "passkey"
}
