package smart

// Configuration is the document .well-known/smart-configuration (SMART App Launch 2.2, Conformance). All members but the
// capabilities and brands are also in an issuer's discovery document.
type Configuration struct {
	Issuer                string   `json:"issuer"`                                                     // the iss of tokens
	JWKSURI               string   `json:"jwks_uri"`                                                   // of the keys that sign them
	AuthorizationEndpoint string   `json:"authorization_endpoint"`                                     // RFC 6749 §3.1
	TokenEndpoint         string   `json:"token_endpoint"`                                             // RFC 6749 §3.2
	RevocationEndpoint    string   `json:"revocation_endpoint,omitempty"`                              // RFC 7009
	IntrospectionEndpoint string   `json:"introspection_endpoint,omitempty"`                           // RFC 7662
	RegistrationEndpoint  string   `json:"registration_endpoint,omitempty"`                            // RFC 7591
	ManagementEndpoint    string   `json:"management_endpoint,omitempty"`                              // where people see which clients have access
	ClientAuthentication  []string `json:"token_endpoint_auth_methods_supported,omitempty"`            // RFC 8414 §2
	ClientAlgorithms      []string `json:"token_endpoint_auth_signing_alg_values_supported,omitempty"` // of client assertions (RFC 7523)
	GrantTypes            []string `json:"grant_types_supported"`                                      // of the token endpoint
	Scopes                []string `json:"scopes_supported,omitempty"`                                 // some of those that can be requested
	ResponseTypes         []string `json:"response_types_supported,omitempty"`                         // of the authorization endpoint
	ChallengeMethods      []string `json:"code_challenge_methods_supported"`                           // of PKCE (RFC 7636): S256 alone
	Capabilities          []string `json:"capabilities"`                                               // by their names in SMART App Launch 2.2

	UserAccessBrandBundle     string      `json:"user_access_brand_bundle,omitempty"`     // the URL of the Bundle
	UserAccessBrandIdentifier *Identifier `json:"user_access_brand_identifier,omitempty"` // of this server's brand in it
}

// Identifier is FHIR's data type Identifier.
type Identifier struct {
	System string `json:"system,omitempty"` // the namespace, a URI
	Value  string `json:"value"`            // unique in the namespace
}

// String returns the identifier as a token of FHIR's searches: system|value.
func (i Identifier) String() string { return i.System + "|" + i.Value }

// OAuthURIs are endpoints of an authorization server, as the extension oauth-uris names them (SMART App Launch 2.2,
// "Conformance"). Empty URLs are left out.
type OAuthURIs struct {
	// Authorize is the authorization endpoint (RFC 6749 §3.1).
	Authorize string
	// Token is the token endpoint (RFC 6749 §3.2).
	Token string
	// Register is where clients register themselves (RFC 7591).
	Register string
	// Manage is where users see and end what they have granted.
	Manage string
	// Introspect is the introspection endpoint (RFC 7662).
	Introspect string
	// Revoke is the revocation endpoint (RFC 7009).
	Revoke string
}
