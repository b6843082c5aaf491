package capability

import "encoding/json"

// oauthURIs is the extension that tells apps the endpoints (SMART App Launch 1, still read by many).
const oauthURIs = "http://fhir-registry.smarthealthit.org/StructureDefinition/oauth-uris"

// OAuthURIs are endpoints of an authorization server, as the extension oauth-uris names them (SMART App Launch 2.2,
// "Conformance"). Empty ones are not told.
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

// extension is an Extension with a URI, or with more of its kind.
type extension struct {
	URL       string      `json:"url"`
	ValueURI  string      `json:"valueUri,omitempty"`
	Extension []extension `json:"extension,omitempty"`
}

// security is CapabilityStatement.rest.security. What the server says of its own security is about others than clients.
func security(o OAuthURIs, cors bool) []byte {
	security := struct {
		Extension []extension `json:"extension,omitempty"`
		CORS      bool        `json:"cors"`
		Service   any         `json:"service"`
	}{o.extensions(), cors, []any{map[string]any{
		"coding": []map[string]string{{
			"system": "http://terminology.hl7.org/CodeSystem/restful-security-service", "code": "SMART-on-FHIR", "display": "SMART-on-FHIR",
		}},
		"text": "OAuth2 using SMART-on-FHIR profile (see http://docs.smarthealthit.org)",
	}}}
	text, _ := json.Marshal(security) // strings never fail
	return text
}

// extensions is the extension oauth-uris, which must have a token endpoint.
func (o OAuthURIs) extensions() []extension {
	if o.Token == "" {
		return nil
	}
	var uris []extension
	for _, u := range []extension{
		{URL: "authorize", ValueURI: o.Authorize}, {URL: "token", ValueURI: o.Token}, {URL: "register", ValueURI: o.Register},
		{URL: "manage", ValueURI: o.Manage}, {URL: "introspect", ValueURI: o.Introspect}, {URL: "revoke", ValueURI: o.Revoke},
	} {
		if u.ValueURI != "" {
			uris = append(uris, u)
		}
	}
	return []extension{{URL: oauthURIs, Extension: uris}}
}
