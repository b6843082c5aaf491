package caddymodule

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
	token := g.token()
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
	var out strings.Builder
	code, err := rotateKeysBy(&out, func(target string) (*http.Response, error) {
		w, err := admin(t, g.Context, http.MethodPost, target)
		return w.Result(), err
	})
	if code != 0 || err != nil {
		t.Fatalf("exit code %d, error %v", code, err)
	}
	after := kids()
	for kid := range before {
		if !after[kid] {
			t.Errorf("key %s is gone", kid)
		}
	}
	for kid := range after {
		if !strings.Contains(out.String(), kid) {
			t.Errorf("the command does not tell of %s: %s", kid, &out)
		}
	}
	if len(after) != len(before)+2 {
		t.Errorf("%d keys, then %d", len(before), len(after))
	}
	if r := g.Get("/oauth2/userinfo", token); r.StatusCode != http.StatusOK {
		t.Errorf("a token of before: %d", r.StatusCode)
	}
	checkAdminRefused(t, []refusedAdminRequest{
		{g.Context, http.MethodGet, "/fhir/keys", http.StatusMethodNotAllowed},
		{caddy.Context{}, http.MethodPost, "/fhir/keys", http.StatusNotFound},
	})
}
