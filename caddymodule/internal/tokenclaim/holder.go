package tokenclaim

// AccessToken holds the claims of a verified access token that decide whether its grant
// still stands.
type AccessToken struct {
	ID              string // the jti
	Subject         string // the sub
	ClientID        string // the client_id
	Scope           string // the scope
	Session         string // the sid: the session that the token ends with, if any
	CredentialHash  string // the credential_hash; of the password, or of the client secret, that it ends with
	Provider        string // the idp: the key of the identity provider; empty for a password here
	ProviderAccount string // the idp_account: the provider's account that is linked to a local user, if any
	ACR             string // the acr: the class of the sign-in; empty for a client of its own
}

// Holder is the person or client that an access token was issued to.
type Holder struct {
	FHIRUser string // the URL of the person's FHIR resource; empty without one, or for a client

	Attributes
}
