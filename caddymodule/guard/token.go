package guard

import "time"

// Token is what a verified access token says.
//
// An account is the pair of Issuer and Subject: a subject is a name within its
// issuer, and alice of one is not alice of another (OpenID Connect Core §5.7).
// Whoever looks up a local user must ask for our own issuer first.
type Token struct {
	// Issuer is whose token it is: the iss claim, equal to the [Verifier]'s or
	// [Trusted]'s, or the [Introspector]'s. Never a token's own choice.
	Issuer string
	// Subject is the sub claim: the user, or the client where there is none.
	// It means nothing without Issuer.
	Subject string
	// ClientID is the client_id claim (RFC 9068 §2.2), or what another issuer
	// has in its stead. It is a name within Issuer too. Empty only where an
	// introspection response has none.
	ClientID string
	// ID is the jti claim. Empty where another issuer leaves it out.
	ID string
	// Scope is the scope claim: the granted scopes, separated by one space
	// (RFC 9068 §2.2.3). May be empty.
	Scope string
	// Patient is the patient claim: the id of the patient in context (SMART
	// App Launch). Empty when there is none.
	Patient string
	// FHIRUser is the fhirUser claim: the FHIR resource of the user (SMART
	// App Launch). Empty when there is none.
	FHIRUser string
	// Session is the sid claim of our own tokens: the session that the token ends
	// with. Empty where it ends with none, and with other issuers.
	Session string
	// CredentialHash is the credential_hash claim of our own tokens. Empty where
	// there is none, and with other issuers.
	CredentialHash string
	// Provider and ProviderAccount are the idp and idp_account claims of our own
	// tokens: how the person signed in. Empty where there are none, and with other
	// issuers.
	Provider, ProviderAccount string
	// IssuedAt is the iat claim. Zero where another issuer leaves it out.
	IssuedAt time.Time
	// Expires is the exp claim. The token may still pass for the leeway. Zero
	// where an introspection response has none.
	Expires time.Time
}
