package relyingparty

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"
)

// metadataLifetime is how long a discovery document is fresh.
const metadataLifetime = time.Hour

// algorithms are the accepted signature algorithms: neither none nor HS256…, with which
// the public key or the client secret would do for signing (RFC 8725 §2.1, §3.1).
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
	jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// AlgorithmNames returns the names of the accepted signature algorithms.
func AlgorithmNames() []string {
	names := make([]string, len(algorithms))
	for i, algorithm := range algorithms {
		names[i] = string(algorithm)
	}
	return names
}

// metadata is part of the discovery document (OpenID Connect Discovery §3, RFC 8414 §2,
// RFC 9207 §3, RP-Initiated Logout §2.1).
type metadata struct {
	Issuer                string `json:"issuer"`
	AuthorizationEndpoint string `json:"authorization_endpoint"`
	TokenEndpoint         string `json:"token_endpoint"`
	UserInfoEndpoint      string `json:"userinfo_endpoint"`
	EndSessionEndpoint    string `json:"end_session_endpoint"`
	RevocationEndpoint    string `json:"revocation_endpoint"`
	IntrospectionEndpoint string `json:"introspection_endpoint"`
	JWKSURI               string `json:"jwks_uri"`

	// After parsing, Algorithms and UserinfoAlgorithms hold only those of [algorithms].
	Algorithms            []string `json:"id_token_signing_alg_values_supported"`
	UserinfoAlgorithms    []string `json:"userinfo_signing_alg_values_supported"`
	ChallengeMethods      []string `json:"code_challenge_methods_supported"`
	Scopes                []string `json:"scopes_supported"`
	GrantTypes            []string `json:"grant_types_supported"`
	AuthenticationMethods []string `json:"token_endpoint_auth_methods_supported"`
	ClaimsParameter       bool     `json:"claims_parameter_supported"`
	PromptValues          []string `json:"prompt_values_supported"`
	AnnouncesIssuer       bool     `json:"authorization_response_iss_parameter_supported"`
}

// pkce reports whether the provider supports S256 (RFC 7636 §4.2).
func (m *metadata) pkce() bool { return slices.Contains(m.ChallengeMethods, "S256") }

func newMetadata(issuer string, c client, failed func(error)) *document[*metadata] {
	return &document[*metadata]{
		pause: minInterval, failed: failed,
		fetch: func(ctx context.Context) (*metadata, time.Duration, error) {
			body, err := discoveryText(ctx, c, issuer)
			if err != nil {
				return nil, 0, err
			}
			m, err := parseMetadata(body, issuer)
			return m, metadataLifetime, err
		},
	}
}

func discoveryText(ctx context.Context, c client, issuer string) ([]byte, error) {
	address := strings.TrimSuffix(issuer, "/") + "/.well-known/openid-configuration"
	body, _, err := c.get(ctx, discoveryEndpoint, address, nil)
	return body, err
}

// parseMetadata checks what every use of a discovery document needs. The issuer must be
// exactly the one asked (OpenID Connect Discovery §4.3).
func parseMetadata(body []byte, issuer string) (*metadata, error) {
	m := new(metadata)
	if err := json.Unmarshal(body, m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMetadata, err)
	}
	if m.Issuer != issuer {
		return nil, fmt.Errorf("%w: issuer is %q, not %q", ErrMetadata, m.Issuer, issuer)
	}
	if m.JWKSURI == "" {
		return nil, fmt.Errorf("%w: no jwks_uri", ErrMetadata)
	}
	err := checkEndpoints(issuer,
		named{"authorization_endpoint", m.AuthorizationEndpoint},
		named{"token_endpoint", m.TokenEndpoint},
		named{"userinfo_endpoint", m.UserInfoEndpoint},
		named{"end_session_endpoint", m.EndSessionEndpoint},
		named{"jwks_uri", m.JWKSURI},
	)
	if err != nil {
		return nil, err
	}
	return m, m.setAlgorithms()
}

type named struct{ name, address string }

// checkEndpoints skips endpoints without an address, which the provider does not have.
func checkEndpoints(issuer string, endpoints ...named) error {
	for _, e := range endpoints {
		if e.address != "" {
			if err := checkEndpoint(e.name, e.address, issuer); err != nil {
				return err
			}
		}
	}
	return nil
}

// setAlgorithms keeps the accepted ones. Default: RS256 (OpenID Connect Core §15.1); for userinfo, those of ID tokens.
func (m *metadata) setAlgorithms() error {
	if len(m.Algorithms) == 0 {
		m.Algorithms = []string{string(jose.RS256)}
	}
	isRefused := func(name string) bool { return !slices.Contains(algorithms, jose.SignatureAlgorithm(name)) }
	m.Algorithms = slices.DeleteFunc(m.Algorithms, isRefused)
	if len(m.Algorithms) == 0 {
		return fmt.Errorf("%w: no asymmetric algorithm signs its ID tokens", ErrMetadata)
	}
	if m.UserinfoAlgorithms = slices.DeleteFunc(m.UserinfoAlgorithms, isRefused); len(m.UserinfoAlgorithms) == 0 {
		m.UserinfoAlgorithms = m.Algorithms
	}
	return nil
}

// checkSignIn checks what only a sign-in needs.
func (m *metadata) checkSignIn() error {
	if m.AuthorizationEndpoint == "" || m.TokenEndpoint == "" {
		return fmt.Errorf("%w: no authorization_endpoint or no token_endpoint", ErrMetadata)
	}
	return nil
}

// NamedIssuer returns the issuer in the provider's discovery document as it is now; "" if there is no such document. An issuer
// other than the configured one is a fault of the provider, or of the configuration: nothing it answers is about a person.
func (p *Provider) NamedIssuer(ctx context.Context) string {
	body, err := discoveryText(ctx, p.client, p.config.Issuer)
	var m metadata
	if err != nil || json.Unmarshal(body, &m) != nil {
		return ""
	}
	return m.Issuer
}
