package fhirapp

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/expand"
	"github.com/caddy-fhir/caddy-fhir/terminology/dispatch"
)

// admin calls the admin API of a configuration in the same way as Caddy's admin server.
func admin(t *testing.T, ctx caddy.Context, method, target string) (*httptest.ResponseRecorder, error) {
	t.Helper()
	return adminWithBody(t, ctx, method, target, "")
}

func adminWithBody(t *testing.T, ctx caddy.Context, method, target, body string) (*httptest.ResponseRecorder, error) {
	t.Helper()
	mux := http.NewServeMux()
	var err error
	for _, route := range (&AdminAPI{RunningContext: func() caddy.Context { return ctx }}).Routes() {
		mux.HandleFunc(route.Pattern, func(w http.ResponseWriter, r *http.Request) { err = route.Handler.ServeHTTP(w, r) })
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(method, target, strings.NewReader(body)))
	return w, err
}

// Features can add routes. A handler that is returned as the result writes the response itself.
func TestFeatureRoutes(t *testing.T) {
	before := featureRoutes
	t.Cleanup(func() { featureRoutes = before })
	RegisterAdminRoutes(func(a *AdminAPI) []caddy.AdminRoute {
		return []caddy.AdminRoute{{Pattern: "/fhir/feature", Handler: AdminMethods{http.MethodGet: func(*http.Request) (any, error) {
			_, err := a.App()
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }), err
		}}}}
	})
	if w, err := admin(t, exampleGateway(t, nil).Context, http.MethodGet, "/fhir/feature"); err != nil || w.Code != http.StatusTeapot {
		t.Error(w.Code, err)
	}
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	defer cancel()
	var failure caddy.APIError
	if _, err := admin(t, ctx, http.MethodGet, "/fhir/feature"); !errors.As(err, &failure) || failure.HTTPStatus != http.StatusNotFound {
		t.Errorf("without the app: %v", err)
	}
}

func TestAdminStatus(t *testing.T) {
	g := exampleGateway(t, nil)
	g.Code()
	addCache(t, "a", &fakeCache{statistics: dispatch.Statistics{Entries: 3}})
	w, err := admin(t, g.Context, http.MethodGet, "/fhir/status")
	if err != nil || w.Header().Get("Content-Type") != "application/json" {
		t.Fatal(err, w.Header())
	}
	var s statusResponse
	if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil {
		t.Fatal(err)
	}
	if s.Issuer != "https://localhost:8443" || s.FHIRBase != "/fhir/R4" {
		t.Errorf("issuer %q, base %q", s.Issuer, s.FHIRBase)
	}
	if len(s.Keys) != 3 || s.Keys[0].KeyID == "" || s.Keys[0].Algorithm == "" || s.Keys[0].Created.IsZero() {
		t.Errorf("keys %+v", s.Keys)
	}
	if s.Store == nil || s.Store.Entries < 1 || s.Store.MaxEntries != 1_000_000 || s.Store.Name != "file" || s.Store.Lag != nil {
		t.Errorf("store %+v", s.Store)
	}
	builtIn := func(d expand.DefinitionsStatus) bool {
		return d.Core && len(d.Definitions) == 0 && d.Concepts >= 1000 && d.Seconds > 0
	}
	if !slices.ContainsFunc(s.Definitions, builtIn) { // other tests may add definitions
		t.Errorf("definitions %+v", s.Definitions)
	}
	if !slices.Contains(s.Caches, dispatch.Statistics{Entries: 3}) || len(s.Caches) < 2 {
		t.Errorf("caches %+v", s.Caches)
	}
}

// A page of another site cannot use a browser on the gateway's machine to read or change data.
func TestAdminRefusesOtherSites(t *testing.T) {
	for site, refused := range map[string]bool{"": false, "none": false, "same-origin": false, "same-site": true, "cross-site": true} {
		r := httptest.NewRequest(http.MethodGet, "/fhir/status", nil)
		if site != "" {
			r.Header.Set("Sec-Fetch-Site", site)
		}
		answer := func(*http.Request) (any, error) { return struct{}{}, nil }
		err := AdminMethods{http.MethodGet: answer}.ServeHTTP(httptest.NewRecorder(), r)
		var failed caddy.APIError
		if got := errors.As(err, &failed) && failed.HTTPStatus == http.StatusForbidden; got != refused {
			t.Errorf("Sec-Fetch-Site %q: %v", site, err)
		}
	}
}

// A name cannot reverse the text after it in an operator's terminal.
func TestAdminEscapesNames(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	answer := func(*http.Request) (any, error) { return map[string]string{"name": "a\u202eb"}, nil }
	err := AdminMethods{http.MethodGet: answer}.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/fhir/clients", nil))
	if got, want := w.Body.String(), `{"name":"a\u202eb"}`+"\n"; got != want || err != nil {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}

// If a store cannot accept a change, the status is 503, not 500.
func TestAdminStoreFails(t *testing.T) {
	for _, cause := range []error{store.ErrFull, store.ErrUnavailable} {
		answer := func(*http.Request) (any, error) { return nil, fmt.Errorf("ending a session: %w", cause) }
		w := httptest.NewRecorder()
		err := AdminMethods{http.MethodDelete: answer}.ServeHTTP(w, httptest.NewRequest(http.MethodDelete, "/fhir/sessions/1", nil))
		var failed caddy.APIError
		if !errors.As(err, &failed) || failed.HTTPStatus != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
			t.Errorf("%v: %v", cause, err)
		}
	}
}

func TestAdminWithoutApp(t *testing.T) {
	ctx, err := gatewaytest.Provision(t, new(caddy.Config))
	if err != nil {
		t.Fatal(err)
	}
	w, err := admin(t, ctx, http.MethodGet, "/fhir/status")
	if err != nil || w.Code != http.StatusOK {
		t.Errorf("%d %v", w.Code, err)
	}
}

func TestAdminPurge(t *testing.T) {
	if _, err := admin(t, caddy.Context{}, http.MethodDelete, "/fhir/expansions"); err != nil { // removes entries of other tests
		t.Fatal(err)
	}
	first, second := &fakeCache{statistics: dispatch.Statistics{Entries: 3}}, &fakeCache{statistics: dispatch.Statistics{Entries: 4}}
	addCache(t, "a", first)
	addCache(t, "b", second)
	for _, tt := range []struct{ query, url, system string }{
		{"", "", ""},
		{"?url=http://example.org/vs", "http://example.org/vs", ""},
		{"?system=http://loinc.org", "", "http://loinc.org"},
	} {
		w, err := admin(t, caddy.Context{}, http.MethodDelete, "/fhir/expansions"+tt.query)
		var answer map[string]int
		if err == nil {
			err = json.Unmarshal(w.Body.Bytes(), &answer)
		}
		if err != nil || !maps.Equal(answer, map[string]int{"purged": 7}) {
			t.Errorf("%q: %v %v", tt.query, err, answer)
		}
		if second.url != tt.url || second.system != tt.system {
			t.Errorf("%q: url %q, system %q", tt.query, second.url, second.system)
		}
	}
}

func TestAdminRefused(t *testing.T) {
	none := caddy.Context{}
	checkAdminRefused(t, []refusedAdminRequest{
		{none, http.MethodPost, "/fhir/status", http.StatusMethodNotAllowed},
		{none, http.MethodPost, "/fhir/ready", http.StatusMethodNotAllowed},
		{none, http.MethodGet, "/fhir/expansions", http.StatusMethodNotAllowed},
		{none, http.MethodGet, "/fhir/other", http.StatusNotFound},
		{none, http.MethodDelete, "/fhir/expansions?ulr=x", http.StatusBadRequest},
		{none, http.MethodDelete, "/fhir/expansions?url=", http.StatusBadRequest},
	})
}

// refusedAdminRequest is a request that the admin API rejects, with the configuration it is sent to.
type refusedAdminRequest struct {
	ctx            caddy.Context
	method, target string
	status         int
}

func checkAdminRefused(t *testing.T, requests []refusedAdminRequest) {
	t.Helper()
	for _, r := range requests {
		w, err := admin(t, r.ctx, r.method, r.target)
		var refused caddy.APIError
		if !errors.As(err, &refused) || refused.HTTPStatus != r.status {
			t.Errorf("%s %s: %v", r.method, r.target, err)
		}
		if allow := w.Header().Get("Allow"); (r.status == http.StatusMethodNotAllowed) != (allow != "") {
			t.Errorf("%s %s: Allow %q", r.method, r.target, allow)
		}
	}
}

// Caddy finds the admin module, which finds the running configuration.
func TestAdminModule(t *testing.T) {
	info, err := caddy.GetModule("admin.api.fhir")
	if err != nil {
		t.Fatal(err)
	}
	if info.New().(*AdminAPI).RunningContext == nil {
		t.Error("it knows no configuration")
	}
}

// After a key rotation, the previous keys remain published and tokens remain valid.
func TestRotateKeys(t *testing.T) {
	g := exampleGateway(t, nil)
	token := g.Token()
	kids := func() map[string]bool {
		var set jose.JSONWebKeySet
		if err := json.Unmarshal([]byte(gatewaytest.ReadBody(t, g.Get("/.well-known/jwks.json", ""))), &set); err != nil {
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
			t.Errorf("the response does not contain %s: %s", kid, w.Body)
		}
	}
	if len(after) != len(before)+2 {
		t.Errorf("%d keys, then %d", len(before), len(after))
	}
	if r := g.Get("/oauth2/userinfo", token); r.StatusCode != http.StatusOK {
		t.Errorf("earlier token: %d", r.StatusCode)
	}
	checkAdminRefused(t, []refusedAdminRequest{
		{g.Context, http.MethodDelete, "/fhir/keys", http.StatusMethodNotAllowed},
		{g.Context, http.MethodDelete, "/fhir/keys/none", http.StatusNotFound},
		{caddy.Context{}, http.MethodPost, "/fhir/keys", http.StatusNotFound},
	})
}

// Retiring a key invalidates everything signed with it, including tokens that the guard has just accepted.
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

// Second factors are reset for exactly one user. Other query parameters are rejected.
func TestAdminFactorsOfOnePerson(t *testing.T) {
	t.Parallel()
	for _, query := range []string{"", "?user=", "?user=alice&user=bob", "?user=alice&all=true", "?name=alice", "?user&user=alice"} {
		_, err := resetFactors(nil, httptest.NewRequest(http.MethodDelete, factorsPath+query, nil))
		if refused, ok := errors.AsType[caddy.APIError](err); !ok || refused.HTTPStatus != http.StatusBadRequest {
			t.Errorf("%q: %v", query, err)
		}
	}
}

// Denials can be accepted only for a single provider that is suspended.
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
		idpsPath + "/hospital/accept": http.StatusConflict, idpsPath + "/hospital/accept?all=true": http.StatusNotFound,
		idpsPath + "/nosuch/accept": http.StatusNotFound, idpsPath + "/hospital": http.StatusNotFound, idpsPath + "//accept": http.StatusNotFound,
	} {
		_, err := acceptDenials(server, httptest.NewRequest(http.MethodPost, path, nil))
		if refused, ok := errors.AsType[caddy.APIError](err); !ok || refused.HTTPStatus != want {
			t.Errorf("%s: %v", path, err)
		}
	}
	states, err := listIDPs(server, httptest.NewRequest(http.MethodGet, idpsPath, nil))
	if got, _ := json.Marshal(states); err != nil || string(got) != `[{"idp":"hospital","state":"unchecked"}]` {
		t.Errorf("%s, %v", got, err)
	}
}
