package fhirapp

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// The second factors of one person are removed, and the query has nothing else in it.
func TestAdminFactorsOfOnePerson(t *testing.T) {
	t.Parallel()
	for _, query := range []string{"", "?user=", "?user=alice&user=bob", "?user=alice&all=true", "?name=alice", "?user&user=alice"} {
		_, err := resetFactors(nil, httptest.NewRequest(http.MethodDelete, adminFactors+query, nil))
		if refused, ok := errors.AsType[caddy.APIError](err); !ok || refused.HTTPStatus != http.StatusBadRequest {
			t.Errorf("%q: %v", query, err)
		}
	}
}

// Denials are accepted of one provider, which must be suspended.
func TestAdminAcceptsDenialsOfOneProvider(t *testing.T) {
	t.Parallel()
	server, err := authorize.New(authorize.Config{
		Issuer: "https://fhir.example.org", Store: store.NewMemory(0, 0), Logger: slog.New(slog.DiscardHandler),
		IdentityProviders: []people.IdentityProvider{{Key: "hospital", Issuer: "https://login.hospital.example", ClientID: "x"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{
		adminIDPs + "/hospital/accept": http.StatusConflict, adminIDPs + "/hospital/accept?all=true": http.StatusNotFound,
		adminIDPs + "/hospital": http.StatusNotFound, adminIDPs + "//accept": http.StatusNotFound,
	} {
		_, err := acceptDenials(server, httptest.NewRequest(http.MethodPost, path, nil))
		if refused, ok := errors.AsType[caddy.APIError](err); !ok || refused.HTTPStatus != want {
			t.Errorf("%s: %v", path, err)
		}
	}
	states, err := listIDPs(server, httptest.NewRequest(http.MethodGet, adminIDPs, nil))
	if got, _ := json.Marshal(states); err != nil || string(got) != `[{"idp":"hospital","state":"unchecked"}]` {
		t.Errorf("%s, %v", got, err)
	}
}
