package relyingparty_test

import (
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

// claim sets a claim of the ID token; nil removes it.
func claim(name string, value any) func(*providertest.IDToken) {
	return func(t *providertest.IDToken) {
		if t.Claims[name] = value; value == nil {
			delete(t.Claims, name)
		}
	}
}

func in(d time.Duration) int64 { return time.Now().Add(d).Unix() }

func TestIDTokenRefused(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		tamper func(*providertest.IDToken)
		cause  error
	}{
		{"unknown kid", providertest.UnknownKey, relyingparty.ErrUnknownKey},
		{"another's key under a known kid", providertest.ForeignKey, relyingparty.ErrSignature},
		{"alg none", providertest.AlgorithmNone, nil},
		{"HS256 with the public key", providertest.HS256WithPublicKey, nil},
		{"HS256 with the client secret", providertest.HS256WithClientSecret, nil},
		{"alg that the key is not for", func(t *providertest.IDToken) { t.Algorithm = "RS512" }, nil},
		{"wrong nonce", providertest.WrongNonce, nil},
		{"no nonce", providertest.WithoutNonce, nil},
		{"nonce in other case", func(t *providertest.IDToken) {
			t.Claims["Nonce"] = t.Claims["nonce"]
			t.Claims["nonce"] = "another"
		}, nil},
		{"wrong audience", providertest.WrongAudience, nil},
		{"no audience", claim("aud", nil), nil},
		{"wrong issuer", providertest.WrongIssuer, nil},
		{"no issuer", claim("iss", nil), nil},
		{"expired", providertest.Expired, nil},
		{"expired beyond the leeway", claim("exp", in(-2*time.Minute)), nil},
		{"no expiry", claim("exp", nil), nil},
		{"iat to come", claim("iat", in(2*time.Minute)), nil},
		{"no iat", claim("iat", nil), nil},
		{"nbf to come", claim("nbf", in(time.Hour)), nil},
		{"azp of another, two audiences", providertest.OtherAuthorizedParty, nil},
		{"azp of another", claim("azp", "another"), nil},
		{"azp empty", claim("azp", ""), nil},
		{"two audiences, no azp", claim("aud", []string{providertest.ClientID, "another"}), nil},
		{"at_hash of another token", claim("at_hash", "xxxxxxxxxxxxxxxxxxxxxx"), nil},
		{"at_hash empty", claim("at_hash", ""), nil},
		{"no sub", claim("sub", nil), nil},
		{"empty sub", claim("sub", ""), nil},
		{"sub too long", claim("sub", strings.Repeat("x", 256)), nil},
		{"sub a number", claim("sub", 42), nil},
		{"iss in another spelling", func(t *providertest.IDToken) { // the one that go-oidc checks
			t.Claims["iſs"] = t.Claims["iss"]
			t.Claims["iss"] = "https://another.example"
		}, nil},
		{"sub in another spelling", claim("ſub", "another"), nil}, // one that encoding/json takes for sub
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := failedSignIn(t, providertest.Start(t, func(s *providertest.Settings) { s.IDToken = tt.tamper }), 0)
			checkFault(t, err, "", relyingparty.ErrIDToken)
			checkFault(t, err, "", tt.cause)
		})
	}
}

// Discovery's list counts where the key would do for more.
func TestAlgorithmNotListed(t *testing.T) {
	t.Parallel()
	idp := providertest.Start(t, func(s *providertest.Settings) {
		s.KeyAlgorithm = ""
		s.IDToken = func(t *providertest.IDToken) {
			t.Algorithm = "RS512"
			delete(t.Claims, "at_hash") // it has the hash of RS256
		}
	})
	checkFault(t, failedSignIn(t, idp, 0), "", relyingparty.ErrIDToken)
	idp.Change(func(s *providertest.Settings) {
		s.Metadata["id_token_signing_alg_values_supported"] = []string{"RS512"}
	})
	if _, err := signIn(t, newProvider(t, idp, nil), idp, newRequest()); err != nil {
		t.Error("listed:", err)
	}
}

func TestIDTokenAccepted(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		tamper func(*providertest.IDToken)
	}{
		{"as it is", nil},
		{"no kid", func(t *providertest.IDToken) { t.KeyID = "" }},
		{"no at_hash", claim("at_hash", nil)},
		{"audience as a list", claim("aud", []string{providertest.ClientID})},
		{"azp ours", claim("azp", providertest.ClientID)},
		{"two audiences, azp ours", func(t *providertest.IDToken) {
			t.Claims["aud"] = []string{"another", providertest.ClientID}
			t.Claims["azp"] = providertest.ClientID
		}},
		{"expired within the leeway", claim("exp", in(-30*time.Second))},
		{"iat to come within the leeway", claim("iat", in(30*time.Second))},
		{"times with fractions", claim("iat", float64(in(0))+0.5)},
		{"no auth_time", claim("auth_time", nil)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			idp := providertest.Start(t, func(s *providertest.Settings) { s.IDToken = tt.tamper })
			identity, err := signIn(t, newProvider(t, idp, nil), idp, newRequest())
			if err != nil {
				t.Fatal(err)
			}
			if identity.Issuer != idp.Issuer || identity.Subject != providertest.Alice.Subject || identity.IDToken == "" {
				t.Errorf("%+v", identity)
			}
		})
	}
}

// Google is the one provider that leaves the scheme out of iss:
// the identity has the issuer that is configured, or the same person would be
// two.
func TestIdentityIssuerIsConfigured(t *testing.T) {
	t.Parallel()
	const issuer = "https://accounts.google.com"
	idp := providertest.New(issuer)
	idp.Change(func(s *providertest.Settings) { s.IDToken = claim("iss", "accounts.google.com") })
	p := newProvider(t, idp, func(c *relyingparty.Config) { c.Transport = inMemory{idp} })
	identity, err := signIn(t, p, idp, newRequest())
	if err != nil || identity.Issuer != issuer {
		t.Error(identity, err)
	}
}

func TestMaxAge(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, maxAge string
		authTime     any
		ok           bool
	}{
		{"not asked, long ago", "", in(-time.Hour), true},
		{"asked, just now", "60", in(-time.Second), true},
		{"asked, within the leeway", "60", in(-90 * time.Second), true},
		{"asked, long ago", "60", in(-time.Hour), false},
		{"asked, not told", "60", nil, false},
		{"zero, just now", "0", in(-time.Second), true},
		{"zero, long ago", "0", in(-time.Hour), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			idp := providertest.Start(t, func(s *providertest.Settings) { s.IDToken = claim("auth_time", tt.authTime) })
			r := newRequest()
			r.MaxAge = tt.maxAge
			identity, err := signIn(t, newProvider(t, idp, nil), idp, r)
			if (err == nil) != tt.ok {
				t.Fatal(err)
			}
			if want, told := tt.authTime.(int64); err == nil && told && identity.AuthTime.Unix() != want {
				t.Errorf("auth time %v", identity.AuthTime)
			}
		})
	}
}
