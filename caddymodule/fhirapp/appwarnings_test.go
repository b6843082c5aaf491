package fhirapp

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/scopelimit"
)

// What is allowed but not advisable is logged, once each; on loopback, where everything is for trying out, less of it.
func TestWarnings(t *testing.T) {
	t.Parallel()
	idp := func(p IdentityProvider) App {
		p.Key = "hospital"
		return App{Issuer: "https://fhir.example", IdentityProviders: []IdentityProvider{p}, Clients: []Client{{Settings: client.Settings{ID: "c", Scopes: []string{"user/*.rs"}}}}}
	}
	ward := map[string]string{"c": "c"}
	limited := func(l scopelimit.Row, idps ...map[string]string) (a App) {
		a.ScopeLimits = []scopelimit.Row{l}
		for _, claims := range idps {
			a.IdentityProviders = append(a.IdentityProviders, IdentityProvider{IdentityProvider: people.IdentityProvider{TokenClaims: claims}})
		}
		return a
	}
	weak := []client.Client{{ID: "c", Secret: "s3cret"}}
	open := []client.Client{{ID: "c", RedirectURIs: []string{"https://c.example/cb"}, PKCE: client.PKCEOptional}}
	for _, tt := range []struct {
		name    string
		app     App
		clients []client.Client
		want    string
	}{
		{"misspelt scope", App{}, []client.Client{{ID: "c", Scopes: []string{"openid", "ofline_access", "demo.read"}}}, "client_id=c scope=ofline_access did_you_mean=offline_access"},
		{"guessable secret", App{Issuer: "https://fhir.example"}, weak, "128 bits"},
		{"guessable secret on loopback", App{Issuer: "https://localhost:8443"}, weak, ""},
		{"no PKCE", App{Issuer: "https://fhir.example"}, open, "PKCE"},
		{"no PKCE on loopback", App{Issuer: "https://127.0.0.1:8443"}, open, ""},
		{"idp without fhirUser", idp(IdentityProvider{}), nil, "idp=hospital"},
		{"idp with a claim of another name", idp(IdentityProvider{IdentityProvider: people.IdentityProvider{Claims: map[string]string{"name": "n"}}}), nil, "idp=hospital"},
		{"idp with the claim", idp(IdentityProvider{IdentityProvider: people.IdentityProvider{Claims: map[string]string{"fhirUser": "f"}}}), nil, ""},
		{"idp with a list", idp(IdentityProvider{IdentityProvider: people.IdentityProvider{FHIRUsers: map[string]string{"s": "Practitioner/1"}}}), nil, ""},
		{"idp with a search", idp(IdentityProvider{IdentityProvider: people.IdentityProvider{FHIRUserSearch: []launch.PersonSearch{{Type: "Practitioner"}}}}), nil, ""},
		{"idp, fhirUser alone", App{IdentityProviders: []IdentityProvider{{IdentityProvider: people.IdentityProvider{Key: "hospital"}}}, Clients: []Client{{Settings: client.Settings{Scopes: []string{"fhirUser"}}}}}, nil, "fhir_user_search"},
		{"idp that is linked", idp(IdentityProvider{IdentityProvider: people.IdentityProvider{LinkEmail: true}}), nil, ""},
		{"idp, patients alone", App{IdentityProviders: []IdentityProvider{{}}, Clients: []Client{{Settings: client.Settings{Scopes: []string{"patient/*.rs"}}}}}, nil, ""},
		{"idp, registered clients", App{IdentityProviders: []IdentityProvider{{IdentityProvider: people.IdentityProvider{Key: "hospital"}}}}, []client.Client{authorizetest.Newcomer(nil)}, "idp=hospital"},
		{"users without fhir_user", App{Users: []User{{}}, Clients: []Client{{Settings: client.Settings{Scopes: []string{"user/*.rs"}}}}}, nil, "no user has a fhir_user"},
		{"users, client of a feature", App{Users: []User{{}}}, []client.Client{{ID: "sandbox-app", Scopes: []string{"fhirUser"}}}, ""},
		{"users with it", App{Users: []User{{FHIRUser: "Practitioner/1"}}, Clients: []Client{{Settings: client.Settings{Scopes: []string{"user/*.rs"}}}}}, nil, ""},
		{"children's records by address", idp(IdentityProvider{IdentityProvider: people.IdentityProvider{FHIRUserSearch: []launch.PersonSearch{{Type: "Patient"}}}}), nil, "idp=hospital type=Patient"},
		{"by identifier", idp(IdentityProvider{IdentityProvider: people.IdentityProvider{FHIRUserSearch: []launch.PersonSearch{{Type: "Patient", System: "s", Claim: "c"}}}}), nil, ""},
		{"a group of two providers", limited(scopelimit.Row{By: "group"}, nil, nil), nil, "scope_limit idp"},
		{"of one", limited(scopelimit.Row{By: "group"}, nil), nil, ""},
		{"of one, and of users", App{ScopeLimits: []scopelimit.Row{{By: "group", Value: "g"}}, IdentityProviders: make([]IdentityProvider, 1), Users: make([]User, 2)}, nil, "value=g"},
		{"of one that is named", limited(scopelimit.Row{By: "group", IDP: "h"}, nil, nil), nil, ""},
		{"a claim of two", limited(scopelimit.Row{By: "claim", Claim: "c"}, ward, ward), nil, "claim=c"},
		{"a claim of one of two", limited(scopelimit.Row{By: "claim", Claim: "c"}, ward, nil), nil, ""},
		{"all people", limited(scopelimit.Row{By: "any"}, nil, nil), nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var text bytes.Buffer
			logger := slog.New(slog.NewTextHandler(&text, nil))
			var c authorize.Config
			for _, configured := range tt.app.Clients {
				core, err := configured.Literal()
				if err != nil {
					t.Fatal(err)
				}
				c.Clients = append(c.Clients, core)
			}
			if slices.ContainsFunc(tt.clients, func(c client.Client) bool { return c.Registered }) {
				c.Features = append(c.Features, authorizetest.Newcomers(tt.clients))
			}
			warnOfClients(logger, tt.app.Issuer, tt.clients)
			warnOfPeople(logger, &tt.app, &c)
			logged := text.String()
			if tt.want == "" && logged != "" || tt.want != "" && (strings.Count(logged, "\n") != 1 || !strings.Contains(logged, tt.want)) || strings.Contains(logged, "s3cret") {
				t.Errorf("logged %q, want %q", logged, tt.want)
			}
		})
	}
}

// A configuration without any way to get a client is not what anybody wants.
func TestWarningWithoutClients(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		from authorize.Config
		want bool
	}{
		{"none", authorize.Config{}, true},
		{"a client", authorize.Config{Clients: make([]client.Client, 1)}, false},
		{"clients register themselves", authorize.Config{Features: []authorize.Feature{authorizetest.Newcomers{}}}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var text bytes.Buffer
			warnWithoutClients(slog.New(slog.NewTextHandler(&text, nil)), nil, &tt.from)
			if warned := strings.Contains(text.String(), "no client"); warned != tt.want {
				t.Errorf("logged %q", text.String())
			}
		})
	}
}
