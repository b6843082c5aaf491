package guard

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

// Token is what a verified access token says.
//
// An account is the pair of Issuer and Subject: alice of one issuer is not alice of another (OpenID Connect Core
// §5.7). Before looking up a local user, check that the issuer is ours.
type Token struct {
	// Issuer is the issuer as configured in the [Verifier], [Trusted] or [Introspector].
	Issuer string
	// Subject is the sub claim: the user or, if there is none, the client. It is unique only within Issuer.
	Subject string
	// ClientID is the client_id claim (RFC 9068 §2.2), or its equivalent of another issuer. It is unique only within
	// Issuer, and empty only if an introspection response has none.
	ClientID string
	// ID is the jti claim. Empty if another issuer omits it.
	ID string
	// Scope is the scope claim: the granted scopes, separated by one space (RFC 9068 §2.2.3). May be empty.
	Scope string
	// Patient is the patient claim: the id of the patient in context (SMART App Launch), or empty.
	Patient string
	// Related is the related claim of our own tokens: the user, a RelatedPerson or a Person, may have Patient only as long
	// as the FHIR server says that they act for them.
	Related bool
	// FHIRUser is the fhirUser claim: the FHIR resource of the user (SMART App Launch), or empty.
	FHIRUser string
	// Session is the sid claim of our own tokens: the session that the token ends with, if any.
	Session string
	// CredentialHash is the credential_hash claim of our own tokens, if any.
	CredentialHash string
	// Provider and ProviderAccount are the idp and idp_account claims of our own tokens, if any: how the person signed
	// in.
	Provider, ProviderAccount string
	// ACR is the acr claim: the class of the sign-in (RFC 9068 §2.2.1). Empty if the token does not say.
	ACR string
	// AuthTime is the auth_time claim: when the person signed in. Zero if the token does not say.
	AuthTime time.Time
	// Attributes are the person's groups, and further claims that the site names. Of our own tokens, the authorization
	// server tells them. Requests share them: they must not be changed.
	tokenclaim.Attributes
	// IssuedAt is the iat claim. Zero if another issuer omits it.
	IssuedAt time.Time
	// Expires is the exp claim. The leeway comes on top. Zero if an introspection response has none.
	Expires time.Time
	// Memo keeps what is made of the token, as long as the token is remembered. Nil if it is not.
	Memo *Memo
}

// Memo keeps one value for all requests with a token. It is safe for concurrent use. A nil Memo keeps nothing.
type Memo struct{ kept atomic.Value }

// Load returns what is kept; nil if nothing is.
func (m *Memo) Load() any {
	if m == nil {
		return nil
	}
	return m.kept.Load()
}

// Store keeps a value, which must be of the same type each time.
func (m *Memo) Store(value any) {
	if m != nil {
		m.kept.Store(value)
	}
}

// tokenKey is the context key of the token of a request that this process makes itself. No client can set it.
type tokenKey struct{}

// WithToken returns the context for a request that this process makes itself to its own server. The guard treats the request
// as one with the access token.
func WithToken(ctx context.Context, t Token) context.Context {
	return context.WithValue(ctx, tokenKey{}, &t)
}

// TokenOf returns the token of a request that this process makes itself, or nil.
func TokenOf(ctx context.Context) *Token {
	t, _ := ctx.Value(tokenKey{}).(*Token)
	return t
}
