package fhirapp

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// An operator rotates the keys: those of before stay published, and so tokens stay valid.
func TestRotateKeys(t *testing.T) {
	g := exampleGateway(t, nil)
	token := g.Token()
	kids := func() map[string]bool {
		var set jose.JSONWebKeySet
		if err := json.Unmarshal([]byte(gatewaytest.Read(t, g.Get("/.well-known/jwks.json", ""))), &set); err != nil {
			t.Fatal(err)
		}
		all := map[string]bool{}
		for _, key := range set.Keys {
			all[key.KeyID] = true
		}
		return all
	}
	before := kids()
	w, err := admin(t, g.Context, http.MethodPost, "/fhir/keys")
	if err != nil {
		t.Fatal(err)
	}
	after := kids()
	for kid := range before {
		if !after[kid] {
			t.Errorf("key %s is gone", kid)
		}
	}
	for kid := range after {
		if !strings.Contains(w.Body.String(), kid) {
			t.Errorf("the answer does not tell of %s: %s", kid, w.Body)
		}
	}
	if len(after) != len(before)+2 {
		t.Errorf("%d keys, then %d", len(before), len(after))
	}
	if r := g.Get("/oauth2/userinfo", token); r.StatusCode != http.StatusOK {
		t.Errorf("a token of before: %d", r.StatusCode)
	}
	checkAdminRefused(t, []refusedAdminRequest{
		{g.Context, http.MethodDelete, "/fhir/keys", http.StatusMethodNotAllowed},
		{g.Context, http.MethodDelete, "/fhir/keys/none", http.StatusNotFound},
		{caddy.Context{}, http.MethodPost, "/fhir/keys", http.StatusNotFound},
	})
}

// A key that an operator retires ends with all that it signed, also tokens that the guard has just accepted.
func TestRetireKey(t *testing.T) {
	g := exampleGateway(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	token := g.Token()
	passes := func(token string) bool { return g.Get("/fhir/R4/Patient/1", token).StatusCode == http.StatusOK }
	if !passes(token) {
		t.Fatal("the token is not let in to begin with")
	}
	signed, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin(t, g.Context, http.MethodDelete, "/fhir/keys/"+signed.Signatures[0].Header.KeyID); err != nil {
		t.Fatal(err)
	}
	if passes(token) || g.Get("/oauth2/userinfo", token).StatusCode != http.StatusUnauthorized {
		t.Error("the token is let in, although its key was retired")
	}
	if g.Cookies = map[string]string{}; !passes(g.Token()) {
		t.Error("a new token is not let in")
	}
}
