package relyingparty_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

// parse returns the part of a URL before the query, and the parameters of the query.
func parse(t *testing.T, address string) (string, map[string]string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	flat := map[string]string{}
	for name, values := range u.Query() {
		flat[name] = strings.Join(values, "|")
	}
	u.RawQuery = ""
	return u.String(), flat
}

func TestAuthenticationURL(t *testing.T) {
	t.Parallel()
	idp := providertest.Start(t)
	r := newRequest()
	sum := sha256.Sum256([]byte(r.Verifier))
	plain := map[string]string{
		"response_type": "code", "client_id": "client", "redirect_uri": redirectURI, "scope": "openid profile email",
		"state": "st4te", "nonce": "n0nce",
		"code_challenge_method": "S256", "code_challenge": base64.RawURLEncoding.EncodeToString(sum[:]),
	}
	with := func(change map[string]string) map[string]string {
		all := maps.Clone(plain)
		for name, value := range change {
			if all[name] = value; value == "" {
				delete(all, name)
			}
		}
		return all
	}
	full := r
	full.LoginHint, full.Prompt, full.MaxAge, full.UILocales, full.ACRValues = "a@b", "login", "60", "de en", "urn:x"
	account, standard, custom := r, r, r
	account.Prompt = "consent select_account"
	standard.EssentialACR, custom.EssentialACR, custom.ACRClaim = "2 gold", "c1", "acrs"
	byClaims := map[string]any{"claims_parameter_supported": true}
	prompts := func(values ...string) map[string]any { return map[string]any{"prompt_values_supported": values} }
	noPKCE := map[string]any{"code_challenge_methods_supported": []string{"plain"}}
	tests := []struct {
		name     string
		metadata map[string]any
		scopes   []string
		request  relyingparty.AuthenticationRequest
		want     map[string]string
	}{
		{"plain", nil, nil, r, plain},
		{"scopes", nil, []string{"groups"}, r, with(map[string]string{"scope": "openid groups"})},
		{"scopes with openid", nil, []string{"email", "openid"}, r, with(map[string]string{"scope": "email openid"})},
		{"all", nil, nil, full, with(map[string]string{
			"login_hint": "a@b", "prompt": "login", "max_age": "60", "ui_locales": "de en", "acr_values": "urn:x",
		})},
		{"account selection, supported", prompts("none", "select_account"), nil, account, with(map[string]string{"prompt": "consent select_account"})},
		{"account selection, not supported", prompts("none", "login"), nil, account, with(map[string]string{"prompt": "consent login"})},
		{"account selection, supported prompts not listed", nil, nil, account, with(map[string]string{"prompt": "consent login"})},
		{"essential acr", byClaims, nil, standard, with(map[string]string{"claims": `{"id_token":{"acr":{"essential":true,"values":["2","gold"]}}}`})},
		{"essential acr of a provider that takes no claims", nil, nil, standard, plain},
		{"essential acr by a claim of the provider's own", nil, nil, custom, with(map[string]string{"claims": `{"id_token":{"acrs":{"essential":true,"value":"c1"}}}`})},
		{"no S256", noPKCE, nil, r, with(map[string]string{"code_challenge_method": "", "code_challenge": ""})},
		{"endpoint with a query", map[string]any{"authorization_endpoint": idp.Issuer + "/authorize?tenant=1"}, nil, r, with(map[string]string{"tenant": "1"})},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			idp.Change(func(s *providertest.Settings) { s.Metadata = tt.metadata })
			p := newProvider(t, idp, func(c *relyingparty.Config) { c.Scopes = tt.scopes })
			address, err := p.AuthenticationURL(t.Context(), tt.request)
			if err != nil {
				t.Fatal(err)
			}
			if base, got := parse(t, address); base != idp.Issuer+"/authorize" || !maps.Equal(got, tt.want) {
				t.Errorf("%s\ngot  %v\nwant %v", base, got, tt.want)
			}
			if _, err := signIn(t, p, idp, tt.request); err != nil {
				t.Error(err)
			}
		})
	}
}

// A request that lacks a parameter required for protection is rejected.
func TestRequestRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*relyingparty.AuthenticationRequest){
		"no state":       func(r *relyingparty.AuthenticationRequest) { r.State = "" },
		"no nonce":       func(r *relyingparty.AuthenticationRequest) { r.Nonce = "" },
		"no verifier":    func(r *relyingparty.AuthenticationRequest) { r.Verifier = "" },
		"short verifier": func(r *relyingparty.AuthenticationRequest) { r.Verifier = "short" },
		"long verifier":  func(r *relyingparty.AuthenticationRequest) { r.Verifier = strings.Repeat("x", 129) },
		"max_age a word": func(r *relyingparty.AuthenticationRequest) { r.MaxAge = "never" },
		"max_age below":  func(r *relyingparty.AuthenticationRequest) { r.MaxAge = "-1" },
	}
	idp := providertest.Start(t)
	p := newProvider(t, idp, nil)
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRequest()
			c := providerResponse(t, p, idp, r)
			change(&r)
			if address, err := p.AuthenticationURL(t.Context(), r); err == nil {
				t.Error(address)
			}
			if _, err := p.Exchange(t.Context(), c, r); err == nil {
				t.Error("signed in")
			}
		})
	}
	if n := count(idp, providertest.Token); n != 0 {
		t.Errorf("%d codes sent", n)
	}
}

func TestEndSessionURL(t *testing.T) {
	t.Parallel()
	idp := providertest.Start(t)
	address, err := newProvider(t, idp, nil).EndSessionURL(t.Context(), "hint", "https://fhir.example.org/oauth2/logout", "s")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"id_token_hint": "hint", "client_id": "client", "state": "s",
		"post_logout_redirect_uri": "https://fhir.example.org/oauth2/logout",
	}
	if base, got := parse(t, address); base != idp.Issuer+"/logout" || !maps.Equal(got, want) {
		t.Errorf("%s %v", base, got)
	}
	address, err = newProvider(t, idp, nil).EndSessionURL(t.Context(), "", "", "")
	if _, got := parse(t, address); err != nil || !maps.Equal(got, map[string]string{"client_id": "client"}) {
		t.Error(got, err)
	}
	idp.Change(func(s *providertest.Settings) { s.Metadata["end_session_endpoint"] = nil })
	if address, err := newProvider(t, idp, nil).EndSessionURL(t.Context(), "hint", "", ""); address != "" || err != nil {
		t.Error(address, err)
	}
	idp.SetFault(providertest.Discovery, providertest.ResetMidResponse)
	if address, err := newProvider(t, idp, nil).EndSessionURL(t.Context(), "hint", "", ""); address != "" || err == nil {
		t.Error(address, err)
	}
}

// A response from a provider other than the requested one is rejected (mix-up attack, RFC 9207 §1). The code must not be sent
// to any provider.
func TestCallbackIssuer(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		announced any
		issuer    func(string) string
		ok        bool
	}{
		{"announced, right", true, func(iss string) string { return iss }, true},
		{"announced, missing", true, func(string) string { return "" }, false},
		{"announced, another", true, func(string) string { return "https://login.attacker.example" }, false},
		{"announced, with a slash", true, func(iss string) string { return iss + "/" }, false},
		{"not announced, right", nil, func(iss string) string { return iss }, true},
		{"not announced, missing", nil, func(string) string { return "" }, true},
		{"not announced, another", nil, func(string) string { return "https://login.attacker.example" }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			idp := providertest.Start(t, func(s *providertest.Settings) {
				s.Metadata["authorization_response_iss_parameter_supported"] = tt.announced
			})
			p, r := newProvider(t, idp, nil), newRequest()
			c := providerResponse(t, p, idp, r)
			c.Issuer = tt.issuer(idp.Issuer)
			_, err := p.Exchange(t.Context(), c, r)
			if tt.ok != (err == nil) || !tt.ok && !errors.Is(err, relyingparty.ErrCallback) {
				t.Error(err)
			}
			if sent := count(idp, providertest.Token); !tt.ok && sent != 0 {
				t.Errorf("%d codes sent", sent)
			}
		})
	}
}

func TestCallbackDeclined(t *testing.T) {
	t.Parallel()
	idp := providertest.Start(t, func(s *providertest.Settings) { s.AuthorizationError = "access_denied" })
	p, r := newProvider(t, idp, nil), newRequest()
	_, err := signIn(t, p, idp, r)
	var e *relyingparty.Error
	if !errors.As(err, &e) || e.Kind != relyingparty.AuthorizationFailed || e.Code != "access_denied" || e.Status != 0 {
		t.Errorf("%#v", err)
	}
	checkFault(t, err, "", nil)

	// An error response from another provider is rejected too.
	_, err = p.Exchange(t.Context(), relyingparty.Callback{Error: "access_denied", Issuer: "https://login.attacker.example"}, r)
	if errors.As(err, &e) || !errors.Is(err, relyingparty.ErrCallback) {
		t.Error(err)
	}
	_, err = p.Exchange(t.Context(), relyingparty.Callback{Error: "a\r\nb", ErrorDescription: strings.Repeat("x", 5000), Issuer: idp.Issuer}, r)
	if !errors.As(err, &e) || e.Code != "" || len(err.Error()) > 500 || strings.ContainsAny(err.Error(), "\r\n") {
		t.Error(err)
	}
	if _, err = p.Exchange(t.Context(), relyingparty.Callback{Issuer: idp.Issuer}, r); !errors.Is(err, relyingparty.ErrCallback) {
		t.Error("no code:", err)
	}
}

// claim returns a function that sets a claim of the ID token, or removes it if value is nil.
func claim(name string, value any) func(*providertest.IDToken) {
	return func(t *providertest.IDToken) {
		if t.Claims[name] = value; value == nil {
			delete(t.Claims, name)
		}
	}
}

func claimTime(d time.Duration) int64 { return time.Now().Add(d).Unix() }

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
		{"expired", providertest.ExpiredToken, nil},
		{"expired beyond the leeway", claim("exp", claimTime(-2*time.Minute)), nil},
		{"no expiry", claim("exp", nil), nil},
		{"iat in the future", claim("iat", claimTime(2*time.Minute)), nil},
		{"no iat", claim("iat", nil), nil},
		{"nbf in the future", claim("nbf", claimTime(time.Hour)), nil},
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
		{"iss in another spelling", func(t *providertest.IDToken) { // a spelling of iss that go-oidc rejects
			t.Claims["iſs"] = t.Claims["iss"]
			t.Claims["iss"] = "https://another.example"
		}, nil},
		{"sub in another spelling", claim("ſub", "another"), nil}, // a spelling that encoding/json decodes as sub
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

// The algorithm must be listed in the discovery document, even if the key supports others.
func TestAlgorithmNotListed(t *testing.T) {
	t.Parallel()
	idp := providertest.Start(t, func(s *providertest.Settings) {
		s.KeyAlgorithm = ""
		s.IDToken = func(t *providertest.IDToken) {
			t.Algorithm = "RS512"
			delete(t.Claims, "at_hash") // at_hash is computed with the hash of RS256
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
		{"expired within the leeway", claim("exp", claimTime(-30*time.Second))},
		{"iat in the future, within the leeway", claim("iat", claimTime(30*time.Second))},
		{"times with fractions", claim("iat", float64(claimTime(0))+0.5)},
		{"no auth_time", claim("auth_time", nil)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			idp := providertest.Start(t, func(s *providertest.Settings) { s.IDToken = tt.tamper })
			identity := mustSignIn(t, newProvider(t, idp, nil), idp)
			if identity.Issuer != idp.Issuer || identity.Subject != providertest.Alice.Subject || identity.IDToken == "" {
				t.Errorf("%+v", identity)
			}
		})
	}
}

// Google omits the scheme in iss. The identity contains the configured issuer, because otherwise the same person would have two
// identities.
func TestIdentityIssuerIsConfigured(t *testing.T) {
	t.Parallel()
	const issuer = "https://accounts.google.com"
	idp := providertest.New(issuer)
	idp.Change(func(s *providertest.Settings) { s.IDToken = claim("iss", "accounts.google.com") })
	p := newProvider(t, idp, func(c *relyingparty.Config) { c.Transport = handlerTransport{idp} })
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
		{"no max_age, old auth_time", "", claimTime(-time.Hour), true},
		{"max_age, recent auth_time", "60", claimTime(-time.Second), true},
		{"max_age, auth_time within the leeway", "60", claimTime(-90 * time.Second), true},
		{"max_age, old auth_time", "60", claimTime(-time.Hour), false},
		{"max_age, no auth_time", "60", nil, false},
		{"zero, just now", "0", claimTime(-time.Second), true},
		{"zero, long ago", "0", claimTime(-time.Hour), false},
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
			if want, hasAuthTime := tt.authTime.(int64); err == nil && hasAuthTime && identity.AuthTime.Unix() != want {
				t.Errorf("auth time %v", identity.AuthTime)
			}
		})
	}
}

// rsaAlgorithms are the algorithms for authorizetest's RSA key: its JWK does not specify an algorithm.
var rsaAlgorithms = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}

// signedWith returns a function that sets the algorithm. The provider's at_hash is valid only for algorithms with SHA-256.
func signedWith(alg jose.SignatureAlgorithm) func(*providertest.IDToken) {
	return func(token *providertest.IDToken) {
		token.Algorithm = alg
		delete(token.Claims, "at_hash")
	}
}

// Every JWT from a provider must use an algorithm that discovery or the configuration lists for ID tokens (OpenID Connect
// Back-Channel Logout 1.0 §2.6, OpenID Connect Core §3.1.3.7). For userinfo, there is a separate list.
func TestAlgorithms(t *testing.T) {
	t.Parallel()
	kinds := map[string]func(*testing.T, *relyingparty.Provider, *providertest.Provider, jose.SignatureAlgorithm) error{
		"ID token": func(t *testing.T, p *relyingparty.Provider, idp *providertest.Provider, alg jose.SignatureAlgorithm) error {
			idp.Change(func(s *providertest.Settings) { s.IDToken = signedWith(alg) })
			_, err := signIn(t, p, idp, newRequest())
			return err
		},
		"refreshed ID token": func(t *testing.T, p *relyingparty.Provider, idp *providertest.Provider, alg jose.SignatureAlgorithm) error {
			before := mustSignIn(t, p, idp)
			idp.Change(func(s *providertest.Settings) { s.IDToken = signedWith(alg) })
			_, err := p.Refresh(t.Context(), before.RefreshToken, before.Subject, discardToken)
			return err
		},
		"logout token": func(t *testing.T, p *relyingparty.Provider, idp *providertest.Provider, alg jose.SignatureAlgorithm) error {
			_, err := p.VerifyLogoutToken(t.Context(), idp.LogoutToken(signedWith(alg)))
			return err
		},
		"security event": func(t *testing.T, p *relyingparty.Provider, idp *providertest.Provider, alg jose.SignatureAlgorithm) error {
			_, err := p.VerifySecurityEvent(t.Context(), idp.LogoutToken(func(token *providertest.IDToken) {
				token.Algorithm, token.Type = alg, "secevent+jwt"
			}), "https://fhir.example.org/oauth2/events/hospital")
			return err
		},
		"userinfo": func(t *testing.T, p *relyingparty.Provider, idp *providertest.Provider, alg jose.SignatureAlgorithm) error {
			idp.SetFault(providertest.UserInfo, providertest.SignedJSON(map[string]any{"sub": providertest.Alice.Subject}, signedWith(alg)))
			_, err := signIn(t, p, idp, newRequest())
			return err
		},
	}
	for name, tt := range map[string]struct {
		listed, configured, userinfo []string // empty lists are omitted
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
						s.IDToken = signedWith(jose.SignatureAlgorithm(tt.want[0]))
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

func TestClaims(t *testing.T) {
	t.Parallel()
	idp := providertest.Start(t, func(s *providertest.Settings) {
		s.IDToken = providertest.EmailVerifiedString
		s.UserInfoResponse = func(claims map[string]any) {
			claims["name"] = "Somebody Else"
			claims["email_verified"] = true
			claims["phone_number"] = "+15550100"
			claims["employee"] = json.Number("12345678901234567890")
		}
	})
	identity := mustSignIn(t, newProvider(t, idp, nil), idp)
	for name, want := range map[string]any{
		"sub":            providertest.Alice.Subject,
		"name":           "Alice Adams", // from the ID token
		"email_verified": "true",        // a string, not a boolean
		"phone_number":   "+15550100",   // from userinfo
		"employee":       json.Number("12345678901234567890"),
		"groups":         []any{"clinicians"},
	} {
		if got := identity.Claims[name]; !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %#v, want %#v", name, got, want)
		}
	}
}

// The verification in userinfo applies to the address in userinfo and not to a different address in the ID token (OpenID
// Connect Core §5.1: "the End-User's e-mail address"). A denial always applies, because trust_email trusts addresses whose
// verification is unknown.
func TestVerifiedByUserInfo(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		email          any // email in userinfo; nil if omitted
		verified, want any
		inIDToken      any // email_verified in the ID token; nil if omitted
	}{
		"the same address":               {email: "alice@hospital.example", verified: true, want: true},
		"the same address in other case": {email: "Alice@Hospital.example", verified: true, want: true},
		"another address":                {email: "mallory@home.example", verified: true},
		"another address, a string":      {email: "mallory@home.example", verified: "true"},
		"no address":                     {verified: true},
		"denied":                         {email: "alice@hospital.example", verified: false, want: false},
		"denied in other case":           {email: "Alice@Hospital.example", verified: false, want: false},
		"denied, no address":             {verified: false, want: false},
		"denied as a string":             {verified: "false", want: "false"},
		"denied, another address":        {email: "mallory@home.example", verified: false, want: false},
		"denied only by userinfo":        {verified: false, inIDToken: true, want: false},
		"denied only by the ID token":    {email: "alice@hospital.example", verified: true, inIDToken: false, want: false},
	} {
		t.Run(name, func(t *testing.T) {
			idp := providertest.Start(t, func(s *providertest.Settings) {
				s.IDToken = func(token *providertest.IDToken) {
					if token.Claims["email_verified"] = tt.inIDToken; tt.inIDToken == nil {
						delete(token.Claims, "email_verified")
					}
				}
				s.UserInfoResponse = func(claims map[string]any) {
					if claims["email"], claims["email_verified"] = tt.email, tt.verified; tt.email == nil {
						delete(claims, "email")
					}
				}
			})
			identity := mustSignIn(t, newProvider(t, idp, nil), idp)
			if got := identity.Claims["email_verified"]; got != tt.want || identity.Claims["email"] != "alice@hospital.example" {
				t.Errorf("email_verified %v, of %v", got, identity.Claims["email"])
			}
		})
	}
	t.Run("address and its email_verified are userinfo's", func(t *testing.T) {
		idp := providertest.Start(t, func(s *providertest.Settings) {
			s.IDToken = func(token *providertest.IDToken) {
				delete(token.Claims, "email")
				delete(token.Claims, "email_verified")
			}
		})
		identity, err := signIn(t, newProvider(t, idp, nil), idp, newRequest())
		if err != nil || identity.Claims["email_verified"] != true {
			t.Error(identity, err)
		}
	})
}

func TestUserInfoRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]func(map[string]any){
		"another sub":  func(c map[string]any) { c["sub"] = "another" },
		"no sub":       func(c map[string]any) { delete(c, "sub") },
		"sub a number": func(c map[string]any) { c["sub"] = int64(248289761001) },
		"other case":   func(c map[string]any) { c["Sub"] = c["sub"]; c["sub"] = "another" },
	}
	for name, change := range tests {
		checkSignInFails(t, name, relyingparty.ErrUserInfo, func(s *providertest.Settings) { s.UserInfoResponse = change })
	}
	t.Run("sub twice", func(t *testing.T) {
		idp := providertest.Start(t)
		idp.SetFault(providertest.UserInfo, providertest.JSON(200, []byte(`{"sub":"another","sub":"`+providertest.Alice.Subject+`"}`)))
		checkFault(t, failedSignIn(t, idp, 0), "", relyingparty.ErrUserInfo)
	})
}

func TestWithoutUserInfo(t *testing.T) {
	t.Parallel()
	idp := providertest.Start(t, func(s *providertest.Settings) { s.Metadata["userinfo_endpoint"] = nil })
	identity, err := signIn(t, newProvider(t, idp, nil), idp, newRequest())
	if err != nil || identity.Claims["name"] != "Alice Adams" || count(idp, providertest.UserInfo) != 0 {
		t.Error(identity, err)
	}
}

// A userinfo response may be signed, as providers do if the client is registered for that.
func TestSignedUserInfo(t *testing.T) {
	t.Parallel()
	idp := providertest.Start(t)
	good := map[string]any{"iss": idp.Issuer, "aud": []string{"client"}, "sub": providertest.Alice.Subject, "phone_number": "+15550100"}
	tests := []struct {
		name   string
		change func(*providertest.IDToken)
		ok     bool
	}{
		{"right", func(*providertest.IDToken) {}, true},
		{"without iss and aud", func(t *providertest.IDToken) { claim("iss", nil)(t); claim("aud", nil)(t) }, true},
		{"another issuer", providertest.WrongIssuer, false},
		{"another audience", providertest.WrongAudience, false},
		{"another key", providertest.ForeignKey, false},
		{"unknown key", providertest.UnknownKey, false},
		{"not signed", providertest.AlgorithmNone, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			idp.SetFault(providertest.UserInfo, providertest.SignedJSON(good, tt.change))
			identity, err := signIn(t, newProvider(t, idp, nil), idp, newRequest())
			if !tt.ok {
				checkFault(t, err, "", relyingparty.ErrUserInfo)
			} else if err != nil || identity.Claims["phone_number"] != "+15550100" {
				t.Error(identity, err)
			}
		})
	}
}

// tokenRecorder is a transport that records the token response.
type tokenRecorder struct {
	http.RoundTripper
	tokens struct {
		Access  string `json:"access_token"`
		Refresh string `json:"refresh_token"`
	}
}

func (tr *tokenRecorder) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := tr.RoundTripper.RoundTrip(r)
	if err != nil || r.Method != http.MethodPost {
		return response, err
	}
	body, err := io.ReadAll(response.Body)
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, errors.Join(err, json.Unmarshal(body, &tr.tokens))
}

// An identity contains no token of the provider except the refresh token in RefreshToken.
func TestTokensHidden(t *testing.T) {
	t.Parallel()
	idp := providertest.Start(t)
	transport := idp.Transport()
	t.Cleanup(transport.CloseIdleConnections)
	recorder := &tokenRecorder{RoundTripper: transport}
	p := newProvider(t, idp, func(c *relyingparty.Config) { c.Transport = recorder })
	identity := mustSignIn(t, p, idp)
	if identity.RefreshToken != recorder.tokens.Refresh {
		t.Error("another refresh token")
	}
	identity.RefreshToken = ""
	marshalled, err := json.Marshal(identity)
	if err != nil || recorder.tokens.Access == "" || recorder.tokens.Refresh == "" {
		t.Fatal("no tokens", err)
	}
	text := fmt.Sprintf("%#v", *identity) + string(marshalled)
	if strings.Contains(text, recorder.tokens.Access) || strings.Contains(text, recorder.tokens.Refresh) {
		t.Errorf("shows a token: %s", text)
	}
}
