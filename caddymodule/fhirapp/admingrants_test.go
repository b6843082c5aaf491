package fhirapp

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/command"
)

// The guard rejects tokens of revoked grants, even those that it has just accepted. It accepts tokens issued later.
func TestGrantsAreEnded(t *testing.T) {
	g := exampleGateway(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	passes := func(token string) bool { return g.Get("/fhir/R4/Patient/1", token).StatusCode == http.StatusOK }
	for _, query := range []string{"user=alice", "client_id=demo-app", "user=alice&client_id=demo-app"} {
		g.Cookies = map[string]string{}
		token := g.Token()
		if !passes(token) {
			t.Fatal("the token is not let in to begin with")
		}
		w, err := admin(t, g.Context, http.MethodDelete, "/fhir/grants?"+query)
		var ended revokedGrantsResponse
		if err == nil {
			err = json.Unmarshal(w.Body.Bytes(), &ended)
		}
		if err != nil || ended.AlsoRevoked == "" || (ended.Sessions > 0) != (query == "user=alice") {
			t.Errorf("%s: %v, %+v", query, err, ended)
		}
		if g.Cookies = map[string]string{}; passes(token) || !passes(g.Token()) {
			t.Errorf("%s: the token is let in, or a later one is not", query)
		}
	}
}

// Unknown and ambiguous users are reported. The grants of the other users are revoked.
func TestGrantsOfSeveralAreEnded(t *testing.T) {
	g := exampleGateway(t, nil)
	g.Token()
	w, err := admin(t, g.Context, http.MethodDelete, "/fhir/grants?users=alcie&users=alice&users=local:alice")
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		People []struct {
			User string
			revokedGrantsResponse
			Status int
			Error  string
		}
		Failed int
	}
	if err := json.Unmarshal(w.Body.Bytes(), &all); err != nil {
		t.Fatal(err)
	}
	if w.Code != http.StatusMultiStatus || all.Failed != 1 || len(all.People) != 3 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	unknown, alice, again := all.People[0], all.People[1], all.People[2]
	if unknown.User != "alcie" || unknown.Status != http.StatusNotFound || !strings.Contains(unknown.Error, `no user "alcie"`) || unknown.AlsoRevoked != "" {
		t.Errorf("unknown: %+v", unknown)
	}
	if alice.User != "alice" || alice.Status != http.StatusOK || alice.Sessions != 1 || alice.AlsoRevoked == "" {
		t.Errorf("alice: %+v", alice)
	}
	if again.User != "local:alice" || again.Status != http.StatusOK || again.Sessions != 0 || again.Error != "" {
		t.Errorf("alice again: %+v", again)
	}
	if w, err := admin(t, g.Context, http.MethodDelete, "/fhir/grants?users=alice&client_id=demo-app"); err != nil || w.Code != http.StatusOK {
		t.Errorf("one of ?users=: %v, %d %s", err, w.Code, w.Body)
	}
}

// The list contains the apps with access. Ending sessions reports the access that continues.
func TestAdminListsGrants(t *testing.T) {
	g := newGateway(t, gatewaytest.ExampleText(t, "", ""))
	call := func(method, target, to string) (entries []map[string]any) {
		t.Helper()
		w, err := admin(t, g.Context, method, target)
		if err != nil {
			t.Fatal(err)
		}
		response := map[string]json.RawMessage{"": w.Body.Bytes()}
		if to != "" {
			err = json.Unmarshal(w.Body.Bytes(), &response)
		}
		if err == nil {
			err = json.Unmarshal(response[to], &entries)
		}
		if err != nil || entries == nil {
			t.Fatalf("%s: %v", w.Body, err)
		}
		return entries
	}
	if _, err := admin(t, g.Context, http.MethodDelete, "/fhir/grants?user=alice"); err != nil { // grants of other tests, which share the store
		t.Fatal(err)
	}
	g.Token()
	found := call(http.MethodGet, "/fhir/grants?user=alice&client_id=demo-app&name=ALI", "")
	if len(found) != 1 || found[0]["user"] != "alice" || found[0]["client_id"] != "demo-app" || found[0]["until"] != nil {
		t.Errorf("%v", found)
	}
	if found := call(http.MethodGet, "/fhir/grants?client_id=other", ""); len(found) != 0 {
		t.Errorf("another app: %v", found)
	}
	sid := call(http.MethodGet, "/fhir/sessions?user=alice", "")[0]["sid"].(string)
	if found := call(http.MethodDelete, "/fhir/sessions/"+sid, "offline_grants"); len(found) != 0 {
		t.Errorf("access that ends with the session: %v", found)
	}
	for _, end := range []func() string{
		func() string { return "?user=alice" },
		func() string { return "/" + call(http.MethodGet, "/fhir/sessions?user=alice", "")[0]["sid"].(string) },
	} {
		request := gatewaytest.DemoRequest()
		request.Set("scope", "openid user/*.rs offline_access")
		g.Cookies = map[string]string{}
		g.TokenFor(request)
		if found := call(http.MethodDelete, "/fhir/sessions"+end(), "offline_grants"); len(found) != 1 || found[0]["until"] == nil || found[0]["client_name"] == "" {
			t.Errorf("access that continues: %v", found)
		}
	}
}

// Signing out invalidates tokens at the guard too.
func TestGuardRefusesTokenOfEndedSession(t *testing.T) {
	g := exampleGateway(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	token := g.Token()
	before := g.Get("/fhir/R4/Patient/1", token).StatusCode
	if _, err := admin(t, g.Context, http.MethodDelete, "/fhir/sessions?user=alice"); err != nil {
		t.Fatal(err)
	}
	if after := g.Get("/fhir/R4/Patient/1", token).StatusCode; before != http.StatusOK || after != http.StatusUnauthorized {
		t.Errorf("before %d, after %d", before, after)
	}
}

func TestGrantsAreNotEnded(t *testing.T) {
	g := exampleGateway(t, nil)
	const grants = "/fhir/grants"
	checkAdminRefused(t, []refusedAdminRequest{
		{g.Context, http.MethodDelete, grants, http.StatusBadRequest},
		{g.Context, http.MethodDelete, grants + "?user=", http.StatusBadRequest},
		{g.Context, http.MethodDelete, grants + "?user=alice&client=demo-app", http.StatusBadRequest},
		{g.Context, http.MethodDelete, grants + "?user=alice&user=bob", http.StatusBadRequest},
		{g.Context, http.MethodDelete, grants + "?user=alcie", http.StatusNotFound},
		{g.Context, http.MethodDelete, grants + "?users=alice&users=", http.StatusBadRequest},
		{g.Context, http.MethodDelete, grants + "?users=alice&user=alice", http.StatusBadRequest},
		{g.Context, http.MethodDelete, grants + "?users=alice&release_sub=true", http.StatusBadRequest},
		{g.Context, http.MethodDelete, grants + "?users=alice&users=b%zz", http.StatusBadRequest},
		{g.Context, http.MethodDelete, grants + "?" + strings.Repeat("users=alice&", command.MaxPeoplePerRequest) + "users=alice", http.StatusBadRequest},
		{g.Context, http.MethodDelete, grants + "?release_sub=true", http.StatusBadRequest},
		{g.Context, http.MethodDelete, grants + "?user=alice&release_sub=yes", http.StatusBadRequest},
		{g.Context, http.MethodDelete, grants + "?user=alice&client_id=demo-app&release_sub=true", http.StatusBadRequest},
		{g.Context, http.MethodDelete, grants + "?user=alice&release_sub=true", http.StatusNotFound}, // a claim does not find the user
		{g.Context, http.MethodPost, grants + "?user=alice", http.StatusMethodNotAllowed},
		{g.Context, http.MethodGet, grants + "?user=", http.StatusBadRequest},
		{g.Context, http.MethodGet, grants + "?client=demo-app", http.StatusBadRequest},
		{g.Context, http.MethodGet, grants + "?name=a&name=b", http.StatusBadRequest},
		{g.Context, http.MethodGet, grants + "?name=%zz", http.StatusBadRequest},
		{caddy.Context{}, http.MethodGet, grants, http.StatusNotFound},
		{caddy.Context{}, http.MethodDelete, grants + "?user=alice", http.StatusNotFound},
	})
}

func TestAdminSessions(t *testing.T) {
	g := newGateway(t, gatewaytest.ExampleText(t, "", ""))
	type sessionStatus struct {
		ID      string    `json:"sid"`
		User    string    `json:"user"`
		Since   time.Time `json:"since"`
		Address string    `json:"address"`
	}
	list := func(query string) []sessionStatus {
		t.Helper()
		w, err := admin(t, g.Context, http.MethodGet, "/fhir/sessions"+query)
		var found []sessionStatus
		if err == nil {
			err = json.Unmarshal(w.Body.Bytes(), &found)
		}
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	end := func(target string) {
		t.Helper()
		if _, err := admin(t, g.Context, http.MethodDelete, "/fhir/sessions"+target); err != nil {
			t.Error(err)
		}
	}
	end("?user=alice") // ends sessions of other tests, which share the store
	g.Code()
	found := list("?user=alice")
	if len(found) != 1 || found[0].User != "alice" || found[0].ID == "" || found[0].Since.IsZero() || found[0].Address == "" {
		t.Fatalf("%+v", found)
	}
	if found := list("?user=bob"); len(found) != 0 {
		t.Errorf("sessions of bob: %+v", found)
	}
	end("/" + found[0].ID)
	if remaining := list(""); len(remaining) != 0 {
		t.Errorf("ended by its sid: %+v", remaining)
	}
	g.Cookies = map[string]string{}
	g.Code()
	end("?user=alice")
	if remaining := list(""); len(remaining) != 0 {
		t.Errorf("ended by the user: %+v", remaining)
	}
}

func TestAdminSessionsRefused(t *testing.T) {
	g := newGateway(t, gatewaytest.ExampleText(t, "", ""))
	checkAdminRefused(t, []refusedAdminRequest{
		{g.Context, http.MethodDelete, "/fhir/sessions", http.StatusBadRequest},
		{g.Context, http.MethodDelete, "/fhir/sessions?user=alcie", http.StatusNotFound},
		{g.Context, http.MethodDelete, "/fhir/sessions/no-such-session", http.StatusNotFound},
		{g.Context, http.MethodPost, "/fhir/sessions", http.StatusMethodNotAllowed},
		{g.Context, http.MethodGet, "/fhir/sessions?user=", http.StatusBadRequest},
		{g.Context, http.MethodGet, "/fhir/sessions/x", http.StatusMethodNotAllowed},
		{caddy.Context{}, http.MethodGet, "/fhir/sessions", http.StatusNotFound},
		{caddy.Context{}, http.MethodDelete, "/fhir/sessions/x", http.StatusNotFound},
	})
}

// The response to DELETE /fhir/sessions describes the tokens that remain valid.
func TestAdminSessionsListRemainingTokens(t *testing.T) {
	g := exampleGateway(t, nil)
	g.Code()
	for range 2 { // the second time, alice has no sessions
		const target = "?user=alice"
		w, err := admin(t, g.Context, http.MethodDelete, "/fhir/sessions"+target)
		var ended endedSessionsResponse
		if err == nil {
			err = json.Unmarshal(w.Body.Bytes(), &ended)
		}
		const want = "refresh tokens with offline_access and their access tokens; revoke these with DELETE /fhir/grants"
		if err != nil || ended.RemainingAccess != want {
			t.Errorf("%s: %v %+v", target, err, ended)
		}
	}
}
