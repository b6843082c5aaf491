package smart

// Configuration is the document .well-known/smart-configuration (SMART App Launch 2.2, Conformance). All members except the
// capabilities and brands are also part of an issuer's discovery document.
type Configuration struct {
	Issuer                string   `json:"issuer"`                                                     // issuer of tokens (iss)
	JWKSURI               string   `json:"jwks_uri"`                                                   // URL of the keys for verifying tokens
	AuthorizationEndpoint string   `json:"authorization_endpoint"`                                     // RFC 6749 §3.1
	TokenEndpoint         string   `json:"token_endpoint"`                                             // RFC 6749 §3.2
	RevocationEndpoint    string   `json:"revocation_endpoint,omitempty"`                              // RFC 7009
	IntrospectionEndpoint string   `json:"introspection_endpoint,omitempty"`                           // RFC 7662
	RegistrationEndpoint  string   `json:"registration_endpoint,omitempty"`                            // RFC 7591
	ManagementEndpoint    string   `json:"management_endpoint,omitempty"`                              // page where users manage their grants
	ClientAuthentication  []string `json:"token_endpoint_auth_methods_supported,omitempty"`            // supported authentication methods (RFC 8414 §2)
	ClientAlgorithms      []string `json:"token_endpoint_auth_signing_alg_values_supported,omitempty"` // signature algorithms for client assertions (RFC 7523)
	GrantTypes            []string `json:"grant_types_supported"`                                      // grant types of the token endpoint
	Scopes                []string `json:"scopes_supported,omitempty"`                                 // some of the supported scopes
	ResponseTypes         []string `json:"response_types_supported,omitempty"`                         // response types of the authorization endpoint
	ChallengeMethods      []string `json:"code_challenge_methods_supported"`                           // PKCE methods (RFC 7636): only S256
	Capabilities          []string `json:"capabilities"`                                               // capabilities defined by SMART App Launch 2.2

	UserAccessBrandBundle     string      `json:"user_access_brand_bundle,omitempty"`     // URL of the brand Bundle
	UserAccessBrandIdentifier *Identifier `json:"user_access_brand_identifier,omitempty"` // identifier of this server's brand in the Bundle
}

// Identifier is FHIR's data type Identifier.
type Identifier struct {
	System string `json:"system,omitempty"` // namespace URI
	Value  string `json:"value"`            // value that is unique in the namespace
}

// String returns the identifier as a search token (system|value).
func (i Identifier) String() string { return i.System + "|" + i.Value }

// OAuthURIs are the endpoints of an authorization server in the extension oauth-uris (SMART App Launch 2.2, "Conformance").
// Empty URLs are omitted.
type OAuthURIs struct {
	// Authorize is the URL of the authorization endpoint (RFC 6749 §3.1).
	Authorize string
	// Token is the URL of the token endpoint (RFC 6749 §3.2).
	Token string
	// Register is the URL of the dynamic client registration endpoint (RFC 7591).
	Register string
	// Manage is the URL of the page where users view and revoke their grants.
	Manage string
	// Introspect is the URL of the introspection endpoint (RFC 7662).
	Introspect string
	// Revoke is the URL of the revocation endpoint (RFC 7009).
	Revoke string
}
