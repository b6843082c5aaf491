package fhirapp

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

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
	end("?user=alice") // those of other tests, which share the store
	g.Code()
	found := list("?user=alice")
	if len(found) != 1 || found[0].User != "alice" || found[0].ID == "" || found[0].Since.IsZero() || found[0].Address == "" {
		t.Fatalf("%+v", found)
	}
	if others := list("?user=bob"); len(others) != 0 {
		t.Errorf("sessions of bob: %+v", others)
	}
	end("/" + found[0].ID)
	if left := list(""); len(left) != 0 {
		t.Errorf("ended by its sid: %+v", left)
	}
	g.Cookies = map[string]string{}
	g.Code()
	end("?user=alice")
	if left := list(""); len(left) != 0 {
		t.Errorf("ended by the user: %+v", left)
	}
}

func TestAdminSessionsRefused(t *testing.T) {
	g := newGateway(t, gatewaytest.ExampleText(t, "", ""))
	checkAdminRefused(t, []refusedAdminRequest{
		{g.Context, http.MethodDelete, "/fhir/sessions", http.StatusBadRequest},
		{g.Context, http.MethodPost, "/fhir/sessions", http.StatusMethodNotAllowed},
		{g.Context, http.MethodGet, "/fhir/sessions/x", http.StatusMethodNotAllowed},
		{caddy.Context{}, http.MethodGet, "/fhir/sessions", http.StatusNotFound},
		{caddy.Context{}, http.MethodDelete, "/fhir/sessions/x", http.StatusNotFound},
	})
}

// The answer to ending sessions says what does not end with them.
func TestAdminSessionsSayWhatGoesOn(t *testing.T) {
	g := exampleGateway(t, nil)
	g.Code()
	for _, target := range []string{"?user=alice", "/no-such-session"} {
		w, err := admin(t, g.Context, http.MethodDelete, "/fhir/sessions"+target)
		var ended endedSessions
		if err == nil {
			err = json.Unmarshal(w.Body.Bytes(), &ended)
		}
		const want = "refresh tokens with offline_access, and their access tokens; DELETE /fhir/grants ends these too"
		if err != nil || ended.NotEnded != want {
			t.Errorf("%s: %v %+v", target, err, ended)
		}
	}
}
