package conformance

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"

	"github.com/go-jose/go-jose/v4"
)

func configPlan() testPlan {
	return testPlan{
		name: "oidcc-config-certification-test-plan",
		text: "The discovery document and the keys.",
		modules: []testModule{
			{id: "oidcc-discovery-endpoint-verification", checks: "200 and JSON, issuer, required members and their types, https only, public keys with distinct kids, no unknown members", run: moduleDiscovery},
		},
	}
}

// metadataKinds maps the allowed members of the discovery document to the kinds of their values (OpenID Connect Discovery §3,
// RFC 8414 §2, RFC 9126 §5, RFC 9207 §3, RP-Initiated Logout §2.1, Back-Channel Logout §2.1).
var metadataKinds = map[string]string{
	"issuer":                                                   "url",
	"authorization_endpoint":                                   "url",
	"token_endpoint":                                           "url",
	"userinfo_endpoint":                                        "url",
	"jwks_uri":                                                 "url",
	"registration_endpoint":                                    "url",
	"revocation_endpoint":                                      "url",
	"introspection_endpoint":                                   "url",
	"end_session_endpoint":                                     "url",
	"pushed_authorization_request_endpoint":                    "url",
	"scopes_supported":                                         "list",
	"response_types_supported":                                 "list",
	"response_modes_supported":                                 "list",
	"grant_types_supported":                                    "list",
	"subject_types_supported":                                  "list",
	"acr_values_supported":                                     "list",
	"claims_supported":                                         "list",
	"ui_locales_supported":                                     "list",
	"code_challenge_methods_supported":                         "list",
	"id_token_signing_alg_values_supported":                    "list",
	"userinfo_signing_alg_values_supported":                    "list",
	"request_object_signing_alg_values_supported":              "list",
	"require_request_uri_registration":                         "bool",
	"token_endpoint_auth_methods_supported":                    "list",
	"token_endpoint_auth_signing_alg_values_supported":         "list",
	"revocation_endpoint_auth_methods_supported":               "list",
	"revocation_endpoint_auth_signing_alg_values_supported":    "list",
	"introspection_endpoint_auth_methods_supported":            "list",
	"introspection_endpoint_auth_signing_alg_values_supported": "list",
	"claims_parameter_supported":                               "bool",
	"request_parameter_supported":                              "bool",
	"request_uri_parameter_supported":                          "bool",
	"authorization_response_iss_parameter_supported":           "bool",
	"backchannel_logout_supported":                             "bool",
	"backchannel_logout_session_supported":                     "bool",
}

func moduleDiscovery(p *relyingParty) {
	document := p.discovery()
	lists := map[string][]string{}
	for name, value := range document {
		if err := checkMetadata(metadataKinds[name], value); err != nil {
			p.t.Errorf("%s: %v", name, err)
		}
		if list, ok := value.([]any); ok {
			lists[name] = texts(list)
		}
	}
	for _, name := range []string{"authorization_endpoint", "token_endpoint", "userinfo_endpoint", "jwks_uri"} {
		if document[name] == nil {
			p.t.Errorf("no %s", name)
		}
	}
	// request_uri_parameter_supported defaults to true if it is missing (OpenID Connect Discovery §3).
	if document["issuer"] != issuer || document["claims_parameter_supported"] != true || document["request_uri_parameter_supported"] != true {
		p.t.Errorf("%v", document)
	}
	for name, wanted := range map[string][]string{
		"response_types_supported":                    {"code", "id_token", "id_token token"},
		"grant_types_supported":                       {"authorization_code", "implicit", "refresh_token"},
		"subject_types_supported":                     {"public"},
		"id_token_signing_alg_values_supported":       {"RS256"},
		"userinfo_signing_alg_values_supported":       {"RS256"},
		"request_object_signing_alg_values_supported": {"none", "RS256"},
		"scopes_supported":                            {"openid", "profile", "email", "address", "phone", "offline_access"},
		"claims_supported":                            {"sub", "name", "email", "address", "phone_number"},
		"code_challenge_methods_supported":            {"S256"},
	} {
		for _, value := range wanted {
			if !slices.Contains(lists[name], value) {
				p.t.Errorf("%s: %q, without %s", name, lists[name], value)
			}
		}
	}
	for _, scope := range lists["scopes_supported"] {
		if !scopeToken.MatchString(scope) {
			p.t.Errorf("scope %q", scope)
		}
	}
	p.checkKeys()
}

var scopeToken = regexp.MustCompile(`^[\x21\x23-\x5b\x5d-\x7e]+$`)

func checkMetadata(kind string, value any) error {
	switch kind {
	case "url":
		text, _ := value.(string)
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
			return fmt.Errorf("%v is no https address without query and fragment", value)
		}
	case "list":
		list, _ := value.([]any)
		words := texts(list)
		if len(list) == 0 || len(words) != len(list) || len(slices.Compact(slices.Sorted(slices.Values(words)))) != len(list) {
			return fmt.Errorf("%v is no list of texts, each there once", value)
		}
	case "bool":
		if _, ok := value.(bool); !ok {
			return fmt.Errorf("%v is neither true nor false", value)
		}
	default:
		return fmt.Errorf("not known")
	}
	return nil
}

func texts(list []any) (words []string) {
	for _, v := range list {
		if word, ok := v.(string); ok {
			words = append(words, word)
		}
	}
	return words
}

// checkKeys checks the published keys (RFC 7517 §4, OpenID Connect Core §10.1).
func (p *relyingParty) checkKeys() {
	p.t.Helper()
	seen := map[string]bool{}
	rsa := false
	for _, key := range p.keys().Keys {
		if key.KeyID == "" || seen[key.KeyID] || !key.IsPublic() || !key.Valid() || key.Use != "sig" {
			p.t.Errorf("kid %q, use %q, public %t, valid %t", key.KeyID, key.Use, key.IsPublic(), key.Valid())
		}
		seen[key.KeyID] = true
		rsa = rsa || key.Algorithm == string(jose.RS256)
	}
	if !rsa {
		p.t.Error("no key for RS256")
	}
	var raw struct{ Keys []map[string]any }
	p.readJSON(p.Get("/.well-known/jwks.json", ""), &raw)
	for _, key := range raw.Keys {
		for _, private := range []string{"d", "p", "q", "dp", "dq", "qi", "oth", "k"} {
			if key[private] != nil {
				p.t.Errorf("a key has %s", private)
			}
		}
	}
}
