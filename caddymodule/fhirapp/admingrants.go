package fhirapp

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/command"
)

const adminGrants = "/fhir/grants"

// endedGrants is the response to DELETE /fhir/grants.
type endedGrants struct {
	token.RevokedGrants

	// Person identifies the person: provider, colon and the subject at the provider, or local: and the user name; then the user name and sub.
	Person string `json:"person,omitempty"`

	// Released reports whether the sub may be assigned to another person.
	Released bool `json:"sub_released,omitempty"`

	// Void describes the access that was revoked without being counted.
	Void string `json:"void"`
}

// grantsOfPerson is the result for one user of ?users=.
type grantsOfPerson struct {
	User string `json:"user"` // user as named in the request
	*endedGrants

	// Status is the HTTP status that a request for this user alone would get.
	Status int    `json:"status"`
	Error  string `json:"error,omitempty"`
}

// grantsOfPeople is the response to DELETE /fhir/grants?users=, in the order of the request.
type grantsOfPeople struct {
	People []grantsOfPerson `json:"people"`
	Failed int              `json:"failed"`
}

// StatusCode returns 207 if a user failed, and 200 otherwise.
func (g grantsOfPeople) StatusCode() int {
	if g.Failed > 0 {
		return http.StatusMultiStatus
	}
	return http.StatusOK
}

// endGrants revokes the grants of ?user=, of ?client_id=, or of both. One is required, so that an incomplete request does not revoke
// everything. ?release_sub=true releases the user's sub for another person. ?users= may be repeated and means several ?user=.
func endGrants(server *authorize.Server, r *http.Request) (any, error) {
	query, err := grantsQuery(r)
	switch {
	case err != nil:
		return nil, badAdminRequest(err)
	case query.Has("users"):
		return endGrantsOfEach(server, r, query), nil
	}
	return endGrantsOf(server, r, query)
}

// grantsQuery parses the query. A malformed query is rejected as a whole, because url.Values would omit the malformed part.
func grantsQuery(r *http.Request) (url.Values, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("reading the query: %w", err)
	}
	for name, values := range query {
		switch {
		case name != "user" && name != "users" && name != "client_id" && name != "release_sub", slices.Contains(values, ""), name != "users" && len(values) > 1:
			return nil, fmt.Errorf("%q: only user, users, client_id and release_sub are understood, only users may be repeated, and none may be empty", name)
		case len(values) > command.PeoplePerRequest:
			return nil, fmt.Errorf("%d users in one request: send at most %d", len(values), command.PeoplePerRequest)
		}
	}
	switch {
	case !query.Has("user") && !query.Has("users") && !query.Has("client_id"):
		return nil, errors.New("say whose grants to end: ?user=, ?users=, ?client_id=, or a person and ?client_id=")
	case query.Has("users") && (query.Has("user") || query.Has("release_sub")):
		return nil, errors.New("users goes neither with user nor with release_sub")
	}
	return query, nil
}

// endGrantsOfEach revokes the grants of several users. It continues after a failure.
func endGrantsOfEach(server *authorize.Server, r *http.Request, query url.Values) (all grantsOfPeople) {
	for _, user := range query["users"] {
		result := grantsOfPerson{User: user, Status: http.StatusOK}
		ended, err := endGrantsOf(server, r, url.Values{"user": {user}, "client_id": query["client_id"]})
		if err == nil {
			result.endedGrants = &ended
		} else {
			failure := adminError(err)
			result.Status, result.Error = failure.HTTPStatus, failure.Error()
			all.Failed++
		}
		all.People = append(all.People, result)
	}
	return all
}

// endGrantsOf revokes the grants of at most one user.
func endGrantsOf(server *authorize.Server, r *http.Request, query url.Values) (endedGrants, error) {
	user, clientID := query.Get("user"), query.Get("client_id")
	person, err := server.DescribePerson(r.Context(), user)
	if err != nil {
		return endedGrants{}, err
	}
	released, err := releaseSub(server, r, query)
	if err != nil {
		return endedGrants{}, err
	}
	ended, err := server.RevokeGrants(r.Context(), user, clientID)
	if errors.Is(err, token.ErrUnknownPrincipal) && !released {
		return endedGrants{}, caddy.APIError{HTTPStatus: http.StatusNotFound, Err: err}
	}
	if errors.Is(err, token.ErrUnknownPrincipal) { // the account has expired
		err = nil
	}
	return endedGrants{RevokedGrants: ended, Person: person, Released: released, Void: "every code and access token that was given until now"}, err
}

// releaseSub releases the sub of ?user=. It runs before the revocation, so that no grant of the released sub survives.
func releaseSub(server *authorize.Server, r *http.Request, query url.Values) (bool, error) {
	switch {
	case !query.Has("release_sub"):
		return false, nil
	case query.Get("release_sub") != "true" || query.Get("user") == "" || query.Has("client_id"):
		return false, badAdminRequest(errors.New("release_sub=true goes with user alone"))
	}
	released, err := server.ReleaseSub(r.Context(), query.Get("user"))
	if err == nil && !released {
		err = caddy.APIError{HTTPStatus: http.StatusNotFound, Err: errors.New("no person of an identity provider has this sub by a claim")}
	}
	return released, err
}

const adminSessions = "/fhir/sessions"

func listSessions(server *authorize.Server, r *http.Request) (any, error) {
	return server.Sessions(r.Context(), r.URL.Query().Get("user"))
}

// endedSessions is the response to DELETE /fhir/sessions.
type endedSessions struct {
	Sessions int `json:"sessions"`

	// NotEnded describes tokens that outlive the sessions.
	NotEnded string `json:"not_ended"`
}

func sessionsEnded(n int) endedSessions {
	return endedSessions{n, "refresh tokens with offline_access, and their access tokens; DELETE " + adminGrants + " ends these too"}
}

// endSession ends the session in the path, if it exists.
func endSession(server *authorize.Server, r *http.Request) (any, error) {
	ended, err := server.EndSession(r.Context(), strings.TrimPrefix(r.URL.Path, adminSessions+"/"))
	return sessionsEnded(ended), err
}

// endSessions ends all sessions of a user. The user is required, so that an incomplete request does not end all sessions.
func endSessions(server *authorize.Server, r *http.Request) (any, error) {
	user := r.URL.Query().Get("user")
	if user == "" {
		return nil, badAdminRequest(errors.New("say whose sessions to end: ?user="))
	}
	ended, err := server.EndSessions(r.Context(), user)
	return sessionsEnded(ended), err
}

const adminFactors = "/fhir/factors"

// removedFactors is the response to DELETE /fhir/factors.
type removedFactors struct {
	Sessions int `json:"sessions"` // sessions of the user that were ended
}

// resetFactors removes the second factors and passkeys that ?user= has enrolled, for a user who has lost all of them.
func resetFactors(server *authorize.Server, r *http.Request) (any, error) {
	query := r.URL.Query()
	if len(query) != 1 || len(query["user"]) != 1 || query.Get("user") == "" {
		return nil, badAdminRequest(errors.New("say whose factors to remove: ?user="))
	}
	had, sessions, err := server.ResetFactors(r.Context(), query.Get("user"))
	if err == nil && !had {
		err = caddy.APIError{HTTPStatus: http.StatusNotFound, Err: fmt.Errorf("%q has set up no factor", query.Get("user"))}
	}
	return removedFactors{sessions}, err
}
