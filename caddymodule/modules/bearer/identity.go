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

// holders looks up the current holders of tokens issued by the fhir app.
type holders interface {
	Holder(ctx context.Context, t tokenclaim.AccessToken) (*tokenclaim.Holder, error)
}

type authenticator struct {
	location apiLocation
	guard    *guard.Guard
	holders  holders // nil without the fhir app

	hasPolicies bool // whether policies may use groups and claims
}

// authenticate verifies the token if the request requires one, and sets the identity placeholders. If there is no valid token,
// it sets them to "", because an earlier handler may have set them.
func (a *authenticator) authenticate(r *http.Request) (token *guard.Token, err error) {
	if !isPublicRequest(r, a.location.path) {
		token, err = a.verify(r)
	}
	(&identity{token: token}).register(r)
	return token, err
}

// verify returns the verified token of a request. If it returns an error, the token is nil.
func (a *authenticator) verify(r *http.Request) (*guard.Token, error) {
	if own := guard.TokenFromContext(r.Context()); own != nil {
		return own, nil
	}
	raw, err := guard.Bearer(r)
	if err != nil {
		return nil, err
	}
	token, err := a.guard.Verify(r.Context(), raw)
	if err != nil || !a.location.isLocalToken(token) {
		return token, err
	}
	return a.resolveHolder(r.Context(), token)
}

// resolveHolder looks up the holder of a token issued by the fhir app. It rejects the token if its session or grant has ended.
func (a *authenticator) resolveHolder(ctx context.Context, token *guard.Token) (*guard.Token, error) {
	holder, err := a.holders.Holder(ctx, toAccessToken(token))
	switch {
	case err != nil:
		return nil, guard.VerificationUnavailable(err)
	case holder == nil:
		return nil, guard.HolderRemoved()
	case holder.FHIRUser == token.FHIRUser && !a.hasPolicies:
		return token, nil
	}
	copied := *token // copied, because other requests share the token
	copied.FHIRUser, copied.Attributes = holder.FHIRUser, holder.Attributes
	return &copied, nil
}

// toAccessToken returns the claims of a token that the authorization server needs.
func toAccessToken(t *guard.Token) tokenclaim.AccessToken {
	return tokenclaim.AccessToken{
		ID: t.ID, Subject: t.Subject, ClientID: t.ClientID, Scope: t.Scope, Session: t.Session,
		CredentialHash: t.CredentialHash, Provider: t.Provider, ProviderAccount: t.ProviderAccount, ACR: t.ACR,
	}
}

// identity provides the identity placeholders. It computes them on demand, because few requests use them and six additional
// entries would double Caddy's map of set values.
type identity struct {
	token     *guard.Token // nil if there is no verified identity
	isProbing bool         // set while providesPlaceholderFirst tests which provider is called first
}

// register adds the placeholders to a request. If another provider comes first for a placeholder, register sets the value
// explicitly, so that no placeholder has another handler's value.
func (i *identity) register(r *http.Request) {
	repl := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	repl.Map(i.provide)
	for _, name := range requester.IdentityPlaceholders {
		if !i.providesPlaceholderFirst(repl, name) {
			value, _ := i.provide(name)
			repl.Set(name, value)
		}
	}
}

// providesPlaceholderFirst reports whether this provider is the first that has a value for a placeholder.
func (i *identity) providesPlaceholderFirst(repl *caddy.Replacer, name string) bool {
	i.isProbing = true
	by, _ := repl.Get(name)
	i.isProbing = false
	return by == any(i)
}

// provide implements [caddy.ReplacerFunc].
func (i *identity) provide(name string) (any, bool) {
	claim := i.claim(name)
	switch {
	case claim == nil:
		return nil, false
	case i.isProbing:
		return i, true
	}
	return *claim, true
}

// claim returns the token's value for a placeholder, or nil if it is not an identity placeholder.
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

// SignInPolicy specifies requirements for the sign-in of the person to whom a token was issued. If a token's acr or auth_time
// does not meet them, the request is rejected with a step-up challenge (RFC 9470). Tokens that the fhir app issued to a client
// without a user are exempt, because there was no sign-in.
type SignInPolicy struct {
	// The authentication context classes (`acr`) that are sufficient, in order of preference. Each of the fhir app's classes
	// `sfa`, `mfa` and `phr` includes the preceding ones. Default: any class.
	ACR []string `json:"acr,omitempty"`

	// The maximum time since the sign-in (`auth_time`). Default: no limit.
	MaxAge caddy.Duration `json:"max_age,omitempty"`
}

// check returns an error if the token's sign-in does not meet the policy. isLocalToken reports whether the app issued the
// token.
func (p *SignInPolicy) check(r *http.Request, t *guard.Token, isOwn bool) error {
	if len(p.ACR) == 0 && p.MaxAge == 0 {
		return nil
	}
	if guard.TokenFromContext(r.Context()) != nil || isOwn && t.Subject == t.ClientID {
		return nil
	}
	required := guard.StepUp{ACR: p.ACR, MaxAge: time.Duration(p.MaxAge)}
	if isOwn {
		required.SatisfiesACR = includesACR
	}
	return required.Check(t, time.Now())
}

// includesACR reports whether the class of a token issued by the fhir app includes the required class.
func includesACR(t *guard.Token, required string) bool {
	return slices.Contains(oauth2.ACRValues, required) && oauth2.MeetsACR(t.ACR, required)
}

// checkACRValues returns an error if only the fhir app's tokens are accepted and a required class is not one of the app's.
func (p *SignInPolicy) checkACRValues(onlyAppTokens bool) error {
	for _, class := range p.ACR {
		if onlyAppTokens && !slices.Contains(oauth2.ACRValues, class) {
			return fmt.Errorf("acr %q would reject every token: use one of %q, or trust another issuer", class, oauth2.ACRValues)
		}
	}
	return nil
}

// checkACR returns an error for a class that cannot be part of acr_values.
func checkACR(class string) error {
	if strings.ContainsFunc(class, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }) {
		return fmt.Errorf("acr %q contains characters that are not allowed in a WWW-Authenticate challenge", class)
	}
	return nil
}
