package bearer

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/requester"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

// holders knows whom the fhir app's tokens stand for.
type holders interface {
	Holder(ctx context.Context, t tokenclaim.AccessToken) (*tokenclaim.Holder, error)
}

// authenticator tells who sends a request.
type authenticator struct {
	at      address
	guard   *guard.Guard
	holders holders // nil without the fhir app

	hasPolicies bool // which may ask for groups and claims
}

// authenticate verifies the token, if the request needs one, and sets the identity placeholders. Without a valid token it
// empties them, since an earlier handler may have set them.
func (a *authenticator) authenticate(r *http.Request) (token *guard.Token, err error) {
	if !isPublic(r, a.at.path) {
		token, err = a.verify(r)
	}
	(&identity{token: token}).set(r)
	return token, err
}

// verify returns the verified token of a request, or an error and no token.
func (a *authenticator) verify(r *http.Request) (*guard.Token, error) {
	if own := guard.TokenOf(r.Context()); own != nil {
		return own, nil
	}
	raw, err := guard.Bearer(r)
	if err != nil {
		return nil, err
	}
	token, err := a.guard.Verify(r.Context(), raw)
	if err != nil || !a.at.isOwn(token) {
		return token, err
	}
	return a.complete(r.Context(), token)
}

// complete looks up the holder of a token of ours, and refuses the token if what it depends on has ended, such as the
// session.
func (a *authenticator) complete(ctx context.Context, token *guard.Token) (*guard.Token, error) {
	holder, err := a.holders.Holder(ctx, accessToken(token))
	switch {
	case err != nil:
		return nil, guard.Unavailable(err)
	case holder == nil:
		return nil, guard.Withdrawn()
	case holder.FHIRUser == token.FHIRUser && !a.hasPolicies:
		return token, nil
	}
	changed := *token // which other requests share
	changed.FHIRUser, changed.Attributes = holder.FHIRUser, holder.Attributes
	return &changed, nil
}

// accessToken is what the authorization server needs to know of its token.
func accessToken(t *guard.Token) tokenclaim.AccessToken {
	return tokenclaim.AccessToken{
		ID: t.ID, Subject: t.Subject, ClientID: t.ClientID, Scope: t.Scope, Session: t.Session,
		CredentialHash: t.CredentialHash, Provider: t.Provider, ProviderAccount: t.ProviderAccount, ACR: t.ACR,
	}
}

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

// SignInPolicy is what fhir_bearer asks of how the person behind a token signed in. A token that does not say so is
// refused with what the app has to ask for (RFC 9470). The fhir app's clients that act for themselves have signed nobody
// in, and are not asked.
type SignInPolicy struct {
	// The classes of sign-in (`acr`) of which one suffices, the preferred one first. Of the fhir app's own, `sfa`, `mfa`
	// and `phr`, each includes those before it. Default: any.
	ACR []string `json:"acr,omitempty"`

	// How long ago the person may have signed in (`auth_time`). Default: for any time.
	MaxAge caddy.Duration `json:"max_age,omitempty"`
}

// check refuses a token of a person who did not sign in as the site asks. Tokens of the fhir app are our own.
func (p *SignInPolicy) check(r *http.Request, t *guard.Token, isOwn bool) error {
	if len(p.ACR) == 0 && p.MaxAge == 0 {
		return nil
	}
	if guard.TokenOf(r.Context()) != nil || isOwn && t.Subject == t.ClientID {
		return nil
	}
	required := guard.StepUp{ACR: p.ACR, MaxAge: time.Duration(p.MaxAge)}
	if isOwn {
		required.Meets = includesACR
	}
	return required.Check(t, time.Now())
}

// includesACR reports whether the class of a token of ours includes another.
func includesACR(t *guard.Token, wanted string) bool {
	return slices.Contains(oauth2.ACRValues, wanted) && oauth2.MeetsACR(t.ACR, wanted)
}

// checkClasses refuses classes that no token can have, where only the fhir app's are accepted.
func (p *SignInPolicy) checkClasses(ownAlone bool) error {
	for _, class := range p.ACR {
		if ownAlone && !slices.Contains(oauth2.ACRValues, class) {
			return fmt.Errorf("acr %q is not one of %q, and no other issuer is trusted: no token would pass", class, oauth2.ACRValues)
		}
	}
	return nil
}

// checkACR refuses what cannot stand in acr_values.
func checkACR(class string) error {
	if strings.ContainsFunc(class, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }) {
		return fmt.Errorf("acr %q has characters that no challenge can have", class)
	}
	return nil
}
