package fhirapp

import (
	"cmp"
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

const grantsPath = "/fhir/grants"

// revokedGrantsResponse is the response to DELETE /fhir/grants.
type revokedGrantsResponse struct {
	token.RevokedGrants

	// Person identifies the account. Format: provider, colon and subject at the provider (or "local:" and user name), followed
	// by the user name and the sub.
	Person string `json:"person,omitempty"`

	// SubReleased reports whether the sub may now be assigned to another person.
	SubReleased bool `json:"sub_released,omitempty"`

	// AlsoRevoked describes revoked access that the counts do not include.
	AlsoRevoked string `json:"void"`
}

// personRevocation is the result for one user of ?users=.
type personRevocation struct {
	User string `json:"user"` // user as given in the request
	*revokedGrantsResponse

	// Status is the HTTP status of a request for only this user.
	Status int    `json:"status"`
	Error  string `json:"error,omitempty"`
}

// bulkRevocationResponse is the response to DELETE /fhir/grants?users=. The results are in the order of the request.
type bulkRevocationResponse struct {
	People []personRevocation `json:"people"`
	Failed int                `json:"failed"`
}

// StatusCode returns 207 if the revocation failed for at least one user, otherwise 200.
func (g bulkRevocationResponse) StatusCode() int {
	if g.Failed > 0 {
		return http.StatusMultiStatus
	}
	return http.StatusOK
}

// revokeGrants revokes the grants of ?user=, of ?client_id=, or of both. At least one is required, so that an incomplete
// request does not revoke all grants. ?release_sub=true allows the user's sub to be assigned to another person. ?users= may
// be repeated to revoke the grants of several users.
func revokeGrants(server *authorize.Server, r *http.Request) (any, error) {
	query, err := parseGrantsQuery(r)
	switch {
	case err != nil:
		return nil, badAdminRequest(err)
	case query.Has("users"):
		return revokeGrantsOfUsers(server, r, query), nil
	}
	return revokeMatchingGrants(server, r, query)
}

// parseGrantsQuery returns an error for a malformed query, because url.Values would omit the malformed part.
func parseGrantsQuery(r *http.Request) (url.Values, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("reading the query: %w", err)
	}
	for name, values := range query {
		switch {
		case name != "user" && name != "users" && name != "client_id" && name != "release_sub", slices.Contains(values, ""), name != "users" && len(values) > 1:
			return nil, fmt.Errorf("invalid parameter %q: use user, users, client_id and release_sub with a value; only users may be repeated", name)
		case len(values) > command.MaxPeoplePerRequest:
			return nil, fmt.Errorf("too many users in one request: %d, the maximum is %d", len(values), command.MaxPeoplePerRequest)
		}
	}
	switch {
	case !query.Has("user") && !query.Has("users") && !query.Has("client_id"):
		return nil, errors.New("missing user or client: set ?user= or ?users=, ?client_id=, or both")
	case query.Has("users") && (query.Has("user") || query.Has("release_sub")):
		return nil, errors.New("users cannot be combined with user or release_sub")
	}
	return query, nil
}

// revokeGrantsOfUsers revokes the grants of several users. If it fails for one user, it continues with the next.
func revokeGrantsOfUsers(server *authorize.Server, r *http.Request, query url.Values) (all bulkRevocationResponse) {
	for _, user := range query["users"] {
		result := personRevocation{User: user, Status: http.StatusOK}
		revoked, err := revokeMatchingGrants(server, r, url.Values{"user": {user}, "client_id": query["client_id"]})
		if err == nil {
			result.revokedGrantsResponse = &revoked
		} else {
			failure := toAPIError(err)
			result.Status, result.Error = failure.HTTPStatus, failure.Error()
			all.Failed++
		}
		all.People = append(all.People, result)
	}
	return all
}

// revokeMatchingGrants revokes the grants of one user, one client, or one user at one client.
func revokeMatchingGrants(server *authorize.Server, r *http.Request, query url.Values) (revokedGrantsResponse, error) {
	user, clientID := query.Get("user"), query.Get("client_id")
	person, err := server.DescribePerson(r.Context(), user)
	if err != nil {
		return revokedGrantsResponse{}, err
	}
	released, err := releaseSub(server, r, query)
	if err != nil {
		return revokedGrantsResponse{}, err
	}
	revoked, err := server.RevokeGrants(r.Context(), user, clientID)
	if errors.Is(err, token.ErrUnknownPrincipal) && !released {
		return revokedGrantsResponse{}, caddy.APIError{HTTPStatus: http.StatusNotFound, Err: err}
	}
	if errors.Is(err, token.ErrUnknownPrincipal) { // the account has expired
		err = nil
	}
	return revokedGrantsResponse{RevokedGrants: revoked, Person: person, SubReleased: released, AlsoRevoked: "all codes and access tokens issued so far"}, err
}

// releaseSub allows the sub of ?user= to be reassigned. It runs before the revocation, so that no grant with the sub survives.
func releaseSub(server *authorize.Server, r *http.Request, query url.Values) (bool, error) {
	switch {
	case !query.Has("release_sub"):
		return false, nil
	case query.Get("release_sub") != "true" || query.Get("user") == "" || query.Has("client_id"):
		return false, badAdminRequest(errors.New("release_sub must be true, and requires user without client_id"))
	}
	released, err := server.ReleaseSub(r.Context(), query.Get("user"))
	if err == nil && !released {
		err = caddy.APIError{HTTPStatus: http.StatusNotFound, Err: errors.New("no person of an identity provider has a claim-based sub with this value")}
	}
	return released, err
}

// listGrants lists the apps with access on behalf of people. The parameters user, client_id and name limit the list.
func listGrants(server *authorize.Server, r *http.Request) (any, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	for name, values := range query {
		if !slices.Contains([]string{"user", "client_id", "name"}, name) || len(values) > 1 || values[0] == "" {
			err = fmt.Errorf("invalid parameter %q: use user, client_id and name, each once and with a value", name)
		}
	}
	if err != nil {
		return nil, badAdminRequest(err)
	}
	return server.Grants(r.Context(), token.GrantFilter{User: query.Get("user"), ClientID: query.Get("client_id"), Name: query.Get("name")})
}

const sessionsPath = "/fhir/sessions"

// listSessions lists all sessions or those of ?user=. An empty user, such as from an unset variable, is an error.
func listSessions(server *authorize.Server, r *http.Request) (any, error) {
	query := r.URL.Query()
	if query.Has("user") && query.Get("user") == "" {
		return nil, badAdminRequest(errors.New("empty user: set ?user= to a user, or omit it for all sessions"))
	}
	return server.Sessions(r.Context(), query.Get("user"))
}

// endedSessionsResponse is the response to DELETE /fhir/sessions.
type endedSessionsResponse struct {
	Sessions int `json:"sessions"`

	// RemainingAccess describes tokens that remain valid after the sessions have ended.
	RemainingAccess string `json:"not_ended"`

	// OfflineGrants are the apps that still have access on behalf of the user, because it outlasts sessions.
	OfflineGrants []token.UserGrant `json:"offline_grants"`
}

// newEndedSessions returns the response for n ended sessions of a user with grants.
func newEndedSessions(n int, grants []token.UserGrant) endedSessionsResponse {
	offline := slices.DeleteFunc(append([]token.UserGrant{}, grants...), func(g token.UserGrant) bool { return g.Until.IsZero() })
	return endedSessionsResponse{n, "refresh tokens with offline_access and their access tokens; revoke these with DELETE " + grantsPath, offline}
}

// endSession ends the session in the path, even if the user's grants cannot be listed.
func endSession(server *authorize.Server, r *http.Request) (any, error) {
	sid := strings.TrimPrefix(r.URL.Path, sessionsPath+"/")
	grants, listErr := server.SessionGrants(r.Context(), sid)
	ended, err := server.EndSession(r.Context(), sid)
	return newEndedSessions(ended, grants), cmp.Or(err, listErr)
}

// endSessions ends all sessions of a user. The parameter is required, so that an incomplete request does not end all sessions.
func endSessions(server *authorize.Server, r *http.Request) (any, error) {
	user := r.URL.Query().Get("user")
	if user == "" {
		return nil, badAdminRequest(errors.New("missing user: set ?user="))
	}
	ended, err := server.EndSessions(r.Context(), user)
	if err != nil {
		return nil, err
	}
	grants, err := server.Grants(r.Context(), token.GrantFilter{User: user})
	return newEndedSessions(ended, grants), err
}

const factorsPath = "/fhir/factors"

// removedFactorsResponse is the response to DELETE /fhir/factors.
type removedFactorsResponse struct {
	EndedSessions int `json:"sessions"` // number of the user's sessions that were ended
}

// resetFactors removes the second factors and passkeys of ?user=, so that a user who has lost them can enroll new ones.
func resetFactors(server *authorize.Server, r *http.Request) (any, error) {
	query := r.URL.Query()
	if len(query) != 1 || len(query["user"]) != 1 || query.Get("user") == "" {
		return nil, badAdminRequest(errors.New("missing user: set ?user= to remove factors"))
	}
	had, sessions, err := server.ResetFactors(r.Context(), query.Get("user"))
	if err == nil && !had {
		err = caddy.APIError{HTTPStatus: http.StatusNotFound, Err: fmt.Errorf("user %q has no enrolled factors", query.Get("user"))}
	}
	return removedFactorsResponse{sessions}, err
}
