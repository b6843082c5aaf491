package relyingparty_test

import (
	"slices"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

// rsaAlgorithms are those of the key of authorizetest, which names none of them.
var rsaAlgorithms = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}

// by signs by an algorithm. The provider's at_hash is for those with SHA-256.
func by(alg jose.SignatureAlgorithm) func(*providertest.IDToken) {
	return func(token *providertest.IDToken) {
		token.Algorithm = alg
		delete(token.Claims, "at_hash")
	}
}

// OpenID Connect Back-Channel Logout 1.0 §2.6, OpenID Connect Core §3.1.3.7: every JWT of a provider is accepted by the
// algorithms of its ID tokens alone, as discovery lists them or the configuration does. Userinfo has a list of its own.
func TestAlgorithms(t *testing.T) {
	t.Parallel()
	kinds := map[string]func(*testing.T, *relyingparty.Provider, *providertest.Provider, jose.SignatureAlgorithm) error{
		"ID token": func(t *testing.T, p *relyingparty.Provider, idp *providertest.Provider, alg jose.SignatureAlgorithm) error {
			idp.Change(func(s *providertest.Settings) {
				s.IDToken = by(alg)
			})
			_, err := signIn(t, p, idp, newRequest())
			return err
		},
		"refreshed ID token": func(t *testing.T, p *relyingparty.Provider, idp *providertest.Provider, alg jose.SignatureAlgorithm) error {
			before, err := signIn(t, p, idp, newRequest())
			if err != nil {
				t.Fatal(err)
			}
			idp.Change(func(s *providertest.Settings) {
				s.IDToken = by(alg)
			})
			_, err = p.Refresh(t.Context(), before.RefreshToken, before.Subject, ignored)
			return err
		},
		"logout token": func(t *testing.T, p *relyingparty.Provider, idp *providertest.Provider, alg jose.SignatureAlgorithm) error {
			_, err := p.VerifyLogoutToken(t.Context(), idp.LogoutToken(by(alg)))
			return err
		},
		"security event": func(t *testing.T, p *relyingparty.Provider, idp *providertest.Provider, alg jose.SignatureAlgorithm) error {
			_, err := p.VerifySecurityEvent(t.Context(), idp.LogoutToken(func(token *providertest.IDToken) {
				token.Algorithm, token.Type = alg, "secevent+jwt"
			}), "https://fhir.example.org/oauth2/events/hospital")
			return err
		},
		"userinfo": func(t *testing.T, p *relyingparty.Provider, idp *providertest.Provider, alg jose.SignatureAlgorithm) error {
			idp.Fail(providertest.UserInfo, providertest.SignedJSON(map[string]any{"sub": providertest.Alice.Subject}, by(alg)))
			_, err := signIn(t, p, idp, newRequest())
			return err
		},
	}
	for name, tt := range map[string]struct {
		listed, configured, userinfo []string // empty: not there
		want, wantUserinfo           []string
	}{
		"not listed":                   {nil, nil, nil, []string{"RS256"}, []string{"RS256"}},
		"one":                          {[]string{"PS256"}, nil, nil, []string{"PS256"}, []string{"PS256"}},
		"several":                      {[]string{"RS256", "PS512", "HS256", "none"}, nil, nil, []string{"RS256", "PS512"}, []string{"RS256", "PS512"}},
		"all":                          {rsaAlgorithms, nil, nil, rsaAlgorithms, rsaAlgorithms},
		"all, one configured":          {rsaAlgorithms, []string{"PS256"}, nil, []string{"PS256"}, rsaAlgorithms},
		"another one configured":       {[]string{"RS256"}, []string{"PS256"}, nil, []string{"PS256"}, []string{"RS256"}},
		"userinfo by another":          {[]string{"RS256"}, nil, []string{"none", "HS256", "RS512"}, []string{"RS256"}, []string{"RS512"}},
		"userinfo by none that is one": {[]string{"RS384"}, nil, []string{"none"}, []string{"RS384"}, []string{"RS384"}},
	} {
		for kind, verify := range kinds {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				for _, alg := range rsaAlgorithms {
					want := slices.Contains(tt.want, alg)
					if kind == "userinfo" {
						want = slices.Contains(tt.wantUserinfo, alg)
					}
					idp := providertest.Start(t, func(s *providertest.Settings) {
						s.KeyAlgorithm = ""
						set := func(name string, list []string) {
							if s.Metadata[name] = list; list == nil {
								s.Metadata[name] = nil
							}
						}
						set("id_token_signing_alg_values_supported", tt.listed)
						set("userinfo_signing_alg_values_supported", tt.userinfo)
						s.IDToken = by(jose.SignatureAlgorithm(tt.want[0]))
					})
					p := newProvider(t, idp, func(c *relyingparty.Config) { c.IDTokenAlgorithms = tt.configured })
					if err := verify(t, p, idp, jose.SignatureAlgorithm(alg)); (err == nil) != want {
						t.Errorf("%s: %v", alg, err)
					}
				}
			})
		}
	}
	if _, err := relyingparty.New(relyingparty.Config{Issuer: "https://login.example", ClientID: "c", RedirectURI: redirectURI, IDTokenAlgorithms: []string{"HS256"}}); err == nil {
		t.Error("HS256 can be configured")
	}
}
