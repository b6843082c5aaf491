package relyingparty_test

import (
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

// parse splits an address into what is before the query, and the query.
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
	known, own := r, r
	known.EssentialACR, own.EssentialACR, own.ACRClaim = "2 gold", "c1", "acrs"
	byClaims := map[string]any{"claims_parameter_supported": true}
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
		{"essential acr", byClaims, nil, known, with(map[string]string{"claims": `{"id_token":{"acr":{"essential":true,"values":["2","gold"]}}}`})},
		{"essential acr of a provider that takes no claims", nil, nil, known, plain},
		{"essential acr by a claim of the provider's own", nil, nil, own, with(map[string]string{"claims": `{"id_token":{"acrs":{"essential":true,"value":"c1"}}}`})},
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

// What protects a sign-in is not left to the caller's memory.
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
			c := answer(t, p, idp, r)
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
	idp.Fail(providertest.Discovery, providertest.Reset)
	if address, err := newProvider(t, idp, nil).EndSessionURL(t.Context(), "hint", "", ""); address != "" || err == nil {
		t.Error(address, err)
	}
}
