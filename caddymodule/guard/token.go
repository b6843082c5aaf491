package guard

import "time"

// Token is what a verified access token says.
type Token struct {
	// Issuer is the iss claim, equal to the [Verifier]'s.
	Issuer string
	// Subject is the sub claim: the user, or the client where there is none.
	Subject string
	// ClientID is the client_id claim (RFC 9068 §2.2).
	ClientID string
	// ID is the jti claim.
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
	// IssuedAt is the iat claim.
	IssuedAt time.Time
	// Expires is the exp claim. The token may still pass for the leeway.
	Expires time.Time
}
