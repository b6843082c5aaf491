package token

import (
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// Grant is what a person granted to a client. Codes hold it, and tokens are made from it.
type Grant struct {
	// Family identifies the grant and all its tokens. It is set before the code is sent, so
	// that reuse of the code revokes even a token that is being made.
	Family string `json:"family"`

	ClientID       string            `json:"client_id"`                // that it was given to
	RedirectURI    string            `json:"redirect_uri"`             // of the authorization request
	RequestedScope string            `json:"asked"`                    // before the grant narrowed it
	Scope          []string          `json:"scope"`                    // as granted
	User           string            `json:"user"`                     // the sub
	SignedInAt     time.Time         `json:"signed_in_at"`             // the auth_time
	GrantedAt      time.Time         `json:"at"`                       // compared with cutoffs
	Until          time.Time         `json:"until,omitzero"`           // when the person lets it end; zero if they did not say
	Session        string            `json:"session,omitempty"`        // the sid of the sign-in
	AMR            []string          `json:"amr,omitempty"`            // of the sign-in (RFC 8176)
	Provider       string            `json:"provider,omitempty"`       // the key of the identity provider, if any
	Subject        string            `json:"upstream_sub,omitempty"`   // the sub at the provider
	Credential     []byte            `json:"credential"`               // a hash of the user's at the time
	Generation     oauth2.Generation `json:"generation,omitempty"`     // of the client
	CodeChallenge  string            `json:"code_challenge,omitempty"` // RFC 7636
	Nonce          string            `json:"nonce,omitempty"`          // of the authorization request

	// Launch is the context that the client was launched with; nil without one.
	Launch   *launch.Context `json:"launch,omitempty"`
	Launcher string          `json:"launcher,omitempty"` // the client that named its patient, if one did

	// About is the patient whom the person was asked about, also if they gave none of the
	// patient's records.
	About string `json:"about,omitempty"`

	// ShortTokens lets access tokens end after [shortLifetime], so that apps can try what they do
	// then.
	ShortTokens bool `json:"short_tokens,omitempty"`

	// Asked says that the identity provider is asked about the sign-in when the grant is refreshed.
	Asked bool `json:"revalidated,omitempty"`

	own bool // the person has no other patient, as [Grants.checkAllowed] found

	// Claims requested by name (OpenID Connect Core §5.5).
	UserinfoClaims []string `json:"userinfo_claims,omitempty"`
	IDTokenClaims  []string `json:"id_token_claims,omitempty"` // see UserinfoClaims
}

// shortLifetime is that of access tokens with [Grant].ShortTokens.
const shortLifetime = 10 * time.Second

// ScopeText returns the scope as requests and responses write it (RFC 6749 §3.3).
func (g *Grant) ScopeText() string { return strings.Join(g.Scope, " ") }

// Has reports whether a scope was granted.
func (g *Grant) Has(scope string) bool { return slices.Contains(g.Scope, scope) }

// isRelated reports whether the person has the patient of a grant only as long as the FHIR server says so.
func (g *Grant) isRelated(user *people.User) bool {
	return g.Launch != nil && g.Launcher == "" && user.Person().IsRelated(g.Launch.Patient)
}

// check compares a token request with its authorization request (RFC 6749 §4.1.3).
func (g *Grant) check(client *client.Client, p oauth2.Parameters) error {
	switch {
	case g.ClientID != client.ID:
		return oauth2.InvalidGrant("the code was given to another client")
	case p.Get("redirect_uri") == "":
		return oauth2.InvalidRequest("redirect_uri is missing")
	case p.Get("redirect_uri") != g.RedirectURI:
		return oauth2.InvalidGrant("redirect_uri is not the one of the authorization request")
	}
	return oauth2.CheckVerifier(g.CodeChallenge, p.Get("code_verifier"))
}

// bounded returns a lifetime that ends no later than the person wants the grant to.
func (g *Grant) bounded(lifetime time.Duration) time.Duration {
	if g.ShortTokens {
		lifetime = min(lifetime, shortLifetime)
	}
	if g.Until.IsZero() {
		return lifetime
	}
	return min(lifetime, time.Until(g.Until))
}

// binding is that of the grant's refresh and access tokens.
func (g *Grant) binding() revocation.Binding {
	return revocation.Binding{User: g.User, ClientID: g.ClientID, Session: g.boundSession()}
}

// patient is the id of the patient whom the grant is about, or "".
func (g *Grant) patient() string {
	if g.About != "" || g.Launch == nil {
		return g.About
	}
	return g.Launch.Patient
}

// wantsRefresh reports whether the grant includes a refresh token.
func (g *Grant) wantsRefresh() bool { return g.Has(client.OfflineAccess) || g.Has(client.OnlineAccess) }

// online reports whether the grant's tokens end with the session.
func (g *Grant) online() bool { return !g.Has(client.OfflineAccess) }

// boundSession returns the sid of the session that the grant's tokens end with, or "".
func (g *Grant) boundSession() string {
	if g.online() {
		return g.Session
	}
	return ""
}
