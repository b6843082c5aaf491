package signin

import (
	"net/http"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

// pendingSignIn is a sign-in at a provider. The browser keeps it in a sealed cookie: without
// that, or with another browser's, we did not ask for the response (RFC 9700 §4.7).
type pendingSignIn struct {
	Provider string                             `json:"provider"`
	Issuer   string                             `json:"issuer"` // the provider's, at that time
	Request  relyingparty.AuthenticationRequest `json:"request"`
	Query    string                             `json:"query"`             // of the authorization request
	SID      string                             `json:"sid,omitempty"`     // of the session that the provider is asked about ([Lasting], [Renewal])
	Renewal  bool                               `json:"renewal,omitempty"` // see [Renewal]
}

var errNoPendingSignIn = oauth2.StartAgain("This sign-in was not started in this browser, took too long, or is already over. Go back to the app and sign in from there again.")

// pendingLifetime is how long a sign-in at a provider may take.
const pendingLifetime = 10 * time.Minute

// newPending is a sign-in that begins at a provider, with what each has of its own.
func newPending(p *people.Provider, query string) pendingSignIn {
	return pendingSignIn{Provider: p.Key, Issuer: p.Issuer, Query: query, Request: relyingparty.AuthenticationRequest{
		State: oauth2.RandomToken(), Nonce: oauth2.RandomToken(), Verifier: oauth2.RandomToken(),
	}}
}

// pendingCookie names the cookie of one sign-in, so that tabs do not replace each other's.
func pendingCookie(state string) string {
	return browser.PendingPrefix + strings.TrimPrefix(store.Key("", state), ":")[:12]
}

// store seals a pending sign-in into its cookie.
func (p pendingSignIn) store(sealer *browser.Sealer, w http.ResponseWriter, r *http.Request) error {
	sealed, err := sealer.SealJSON(w, r, "idp", p)
	if err != nil {
		return err
	}
	return browser.SetPieces(w, r, pendingCookie(p.Request.State), sealed, pendingLifetime)
}

// redirect sends the browser of a signed-in person to a provider, and reports whether it did. An error counts as an outage, in
// which the session goes on.
func (p pendingSignIn) redirect(sealer *browser.Sealer, w http.ResponseWriter, r *http.Request, to *people.Provider, req *Request) bool {
	target, err := to.Client.AuthenticationURL(r.Context(), p.Request)
	if err == nil {
		err = p.store(sealer, w, r)
	}
	if err == nil {
		err = req.MarkUsed(r.Context())
	}
	if err != nil {
		return false
	}
	endpoint.Redirect(w, http.StatusFound, target)
	return true
}

// readPending opens the cookie of a state. It is removed once the sign-in has ended.
func readPending(sealer *browser.Sealer, r *http.Request, state string) (pending pendingSignIn, err error) {
	err = sealer.UnsealJSON(r, "idp", browser.ReadPieces(r, pendingCookie(state)), pendingLifetime, errNoPendingSignIn, &pending)
	if err == nil && pending.Request.State != state {
		err = errNoPendingSignIn
	}
	return pending, err
}
