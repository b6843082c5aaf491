package bearer

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
)

// pagedServer is a FHIR server whose searches have a next link that never ends.
var pagedServer = caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
	offset := r.URL.Query().Get("_getpagesoffset") + "1"
	w.Header().Set("Content-Type", "application/fhir+json")
	_, err := fmt.Fprintf(w, `{"resourceType":"Bundle","type":"searchset","link":[{"relation":"self","url":"http://hapi/fhir/R4/Observation"},`+
		`{"relation":"next","url":"http://hapi/fhir/R4/Observation?_getpagesoffset=%[1]s"}],"entry":[{"fullUrl":"http://hapi/fhir/R4/Observation/o%[1]s",`+
		`"resource":{"resourceType":"Observation","id":"o%[1]s","status":"final","code":{"text":"x"},"subject":{"reference":"Patient/p"}},"search":{"mode":"match"}}]}`, offset)
	return err
})

// A page link opens for tokens of the same issuer, person, app, patient and scopes alone: for those that the app gets by
// refresh, and for no other token, even if that token may make the same search.
func TestPageLinkIsBoundToToken(t *testing.T) {
	t.Parallel()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	t.Cleanup(cancel)
	e, err := newEnforcement(ctx, &Enforcement{}, nil, address{path: "/fhir/R4", url: "https://fhir.example.org/fhir/R4"}, nil,
		func(*http.Request, enforce.Bearer, enforce.Decision) {})
	if err != nil {
		t.Fatal(err)
	}
	get := func(t *testing.T, target string, token guard.Token) (status int, next string) {
		t.Helper()
		w := httptest.NewRecorder()
		if err := e.serve(w, httptest.NewRequest(http.MethodGet, target, nil), pagedServer, &token); err != nil {
			refused, _ := errors.AsType[*guard.Error](err)
			if refused == nil {
				t.Fatal(err)
			}
			return refused.Status, ""
		}
		var bundle struct {
			Link []struct{ Relation, URL string }
		}
		if err := json.Unmarshal(w.Body.Bytes(), &bundle); err != nil {
			t.Fatalf("%d %s: %v", w.Code, w.Body, err)
		}
		for _, l := range bundle.Link {
			if u, err := url.Parse(l.URL); err == nil && l.Relation == "next" {
				next = u.RequestURI()
			}
		}
		return w.Code, next
	}
	for _, kind := range []string{"patient", "user", "system"} {
		holder := guard.Token{
			Issuer: "https://fhir.example.org", Subject: "alice", ClientID: "app", ID: "1", Patient: "p", FHIRUser: "Practitioner/alice",
			Scope: kind + "/Observation.rs", Expires: time.Now().Add(time.Minute),
		}
		for name, tt := range map[string]struct {
			change func(*guard.Token)
			opens  bool
		}{
			"the same token":      {func(*guard.Token) {}, true},
			"a refreshed token":   {func(t *guard.Token) { t.ID, t.Expires = "2", t.Expires.Add(time.Hour) }, true},
			"another issuer":      {func(t *guard.Token) { t.Issuer = "https://login.example" }, false},
			"another person":      {func(t *guard.Token) { t.Subject = "bob" }, false},
			"another app":         {func(t *guard.Token) { t.ClientID = "other" }, false},
			"another patient":     {func(t *guard.Token) { t.Patient = "q" }, false},
			"another fhirUser":    {func(t *guard.Token) { t.FHIRUser = "Practitioner/bob" }, false},
			"more scopes":         {func(t *guard.Token) { t.Scope += " " + kind + "/Condition.rs" }, false},
			"wider scopes":        {func(t *guard.Token) { t.Scope = kind + "/*.rs" }, false},
			"another constraint":  {func(t *guard.Token) { t.Scope = kind + "/Observation.rs?status=final" }, false},
			"names run together":  {func(t *guard.Token) { t.Subject, t.ClientID = "aliceapp", "" }, false},
			"the other way round": {func(t *guard.Token) { t.Subject, t.ClientID = t.ClientID, t.Subject }, false},
		} {
			t.Run(kind+" "+name, func(t *testing.T) {
				t.Parallel()
				status, next := get(t, "/fhir/R4/Observation?_count=1", holder)
				if status != http.StatusOK || next == "" {
					t.Fatalf("search: %d, next link %q", status, next)
				}
				other := holder
				tt.change(&other)
				want := http.StatusNotFound
				if tt.opens {
					want = http.StatusOK
				}
				if status, _ := get(t, next, other); status != want {
					t.Errorf("%d, want %d", status, want)
				}
			})
		}
	}
}
