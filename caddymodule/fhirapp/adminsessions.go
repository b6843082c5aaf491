package fhirapp

import (
	"errors"
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
)

const adminSessions = "/fhir/sessions"

func listSessions(server *authorize.Server, r *http.Request) (any, error) {
	return server.Sessions(r.Context(), r.URL.Query().Get("user"))
}

// endedSessions is the answer to DELETE /fhir/sessions.
type endedSessions struct {
	Sessions int `json:"sessions"`

	// NotEnded describes what outlives the sessions.
	NotEnded string `json:"not_ended"`
}

func sessionsEnded(n int) endedSessions {
	return endedSessions{n, "refresh tokens with offline_access, and their access tokens; DELETE " + adminGrants + " ends these too"}
}

// endSession ends the session in the path, if it has not ended already.
func endSession(server *authorize.Server, r *http.Request) (any, error) {
	ended, err := server.EndSession(r.Context(), strings.TrimPrefix(r.URL.Path, adminSessions+"/"))
	return sessionsEnded(ended), err
}

// endSessions ends all sessions of a user, who is required lest an incomplete request end everybody's.
func endSessions(server *authorize.Server, r *http.Request) (any, error) {
	user := r.URL.Query().Get("user")
	if user == "" {
		return nil, badAdminRequest(errors.New("say whose sessions to end: ?user="))
	}
	ended, err := server.EndSessions(r.Context(), user)
	return sessionsEnded(ended), err
}
