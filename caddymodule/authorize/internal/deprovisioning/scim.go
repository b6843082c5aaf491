package deprovisioning

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/internal/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/internal/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/internal/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// Methods are those of [SCIM].
var Methods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// SCIM lets providers say who has left.
type SCIM struct {
	Responder *endpoint.Responder // answers
	Limiter   *lockout.Limiter    // counts wrong tokens
	Ending    *Ending             // what they say
}

// Handler serves what is below a provider's address.
func (s *SCIM) Handler(p *people.Provider) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		audit.FromContext(r.Context()).Provider = p.Key
		err := s.checkToken(r, p)
		if err == nil {
			audit.NoteAuthenticated(r.Context())
			err = s.serve(w, r, p)
		}
		if err != nil {
			s.refuse(w, r, err)
		}
	}
}

var errToken = &oauth2.Error{Code: "invalid_token", Description: "the bearer token is missing or wrong", Status: http.StatusUnauthorized}

// checkToken checks the bearer token. A request without one does not count as an attempt.
func (s *SCIM) checkToken(r *http.Request, p *people.Provider) error {
	scheme, token, _ := strings.Cut(strings.Join(r.Header.Values("Authorization"), ", "), " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return errToken
	}
	err := error(errToken)
	sent, right := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(p.SCIM))
	if subtle.ConstantTimeCompare(sent[:], right[:]) == 1 {
		err = nil
	}
	return s.Limiter.AttemptSecret(r, "scim "+p.Key, err, client.IsGuessable(p.SCIM))
}

func (s *SCIM) serve(w http.ResponseWriter, r *http.Request, p *people.Provider) error {
	resource, id, one := strings.Cut(strings.TrimPrefix(r.URL.Path, endpoint.SCIM+p.Key+"/"), "/")
	switch {
	case resource == "ServiceProviderConfig" && !one && r.Method == http.MethodGet:
		s.write(w, http.StatusOK, providerConfig())
		return nil
	case resource == "Users" && !one && r.Method == http.MethodGet:
		return s.list(w, r, p)
	case resource == "Users" && !one && r.Method == http.MethodPost:
		return s.create(w, r, p)
	case resource == "Users" && one && r.Method != http.MethodPost:
		of, err := parseID(id)
		if err != nil {
			return err
		}
		return s.serveUser(w, r, p, id, of)
	case resource == "Users" || resource == "ServiceProviderConfig":
		return &scimError{status: http.StatusMethodNotAllowed, detail: "this method is not for this address"}
	}
	return &scimError{status: http.StatusNotFound, detail: "only Users and ServiceProviderConfig are here"}
}

// providerConfig says what is supported (RFC 7643 §5).
func providerConfig() any {
	no := map[string]any{"supported": false, "maxOperations": 0, "maxPayloadSize": 0, "maxResults": 1}
	return map[string]any{
		"schemas": []string{configSchema}, "patch": map[string]any{"supported": true}, "filter": map[string]any{"supported": true, "maxResults": 1},
		"bulk": no, "changePassword": no, "sort": no, "etag": no,
		"authenticationSchemes": []any{map[string]any{"type": "oauthbearertoken", "name": "Bearer token", "description": "the token of the option scim"}},
	}
}

// list answers whether somebody has an account here (RFC 7644 §3.4.2). Everybody is not listed.
func (s *SCIM) list(w http.ResponseWriter, r *http.Request, p *people.Provider) error {
	users := []user{}
	if filter := r.URL.Query().Get("filter"); filter != "" {
		of, err := parseFilter(filter)
		if err != nil {
			return err
		}
		of, found, err := s.Ending.identify(r.Context(), p, of)
		if err != nil {
			return err
		}
		if len(found) > 0 {
			shown := s.user(p, of.id(), of, true)
			shown.UserName = cmp.Or(of.UserName, found[0].UserName, found[0].Subject)
			users = append(users, shown)
		}
	}
	s.write(w, http.StatusOK, map[string]any{
		"schemas": []string{listSchema}, "totalResults": len(users), "startIndex": 1, "itemsPerPage": len(users), "Resources": users,
	})
	return nil
}

// create answers with a User, of whom nothing is stored: people get an account when they sign in.
func (s *SCIM) create(w http.ResponseWriter, r *http.Request, p *people.Provider) error {
	of, ends, err := readUser(w, r)
	if err != nil {
		return err
	}
	of, found, err := s.Ending.identify(r.Context(), p, of)
	if err == nil && ends {
		err = s.end(r.Context(), p, found, false)
	}
	if err == nil {
		shown := s.user(p, of.id(), of, !ends)
		w.Header().Set("Location", shown.Meta.Location)
		s.write(w, http.StatusCreated, shown)
	}
	return err
}

func readUser(w http.ResponseWriter, r *http.Request) (of names, ends bool, err error) {
	var sent sentUser
	if err := readJSON(w, r, &sent); err != nil {
		return of, false, err
	}
	of = names{ExternalID: sent.ExternalID, UserName: sent.UserName}
	if err = of.check(); err == nil {
		ends, err = isFalse(sent.Active)
	}
	return of, ends, err
}

// serveUser serves a User by its id. To delete it, or to set active to false, ends everything of the person whom the id
// was given for, whoever has their names by now.
func (s *SCIM) serveUser(w http.ResponseWriter, r *http.Request, p *people.Provider, id string, given names) (err error) {
	var to names
	ends := r.Method == http.MethodDelete
	switch r.Method {
	case http.MethodPut:
		to, ends, err = readUser(w, r)
	case http.MethodPatch:
		var sent patch
		if err = readJSON(w, r, &sent); err == nil {
			to, ends, err = sent.change()
		}
	}
	if err != nil {
		return err
	}
	of, found, err := s.Ending.person(r.Context(), p, id, given)
	if err == nil && r.Method != http.MethodGet {
		of, err = s.Ending.rename(r.Context(), p, id, of, to, found)
	}
	if err == nil && ends {
		err = s.end(r.Context(), p, found, r.Method == http.MethodDelete)
	}
	switch {
	case err != nil:
		return err
	case r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
	default:
		s.write(w, http.StatusOK, s.user(p, id, of, !ends))
	}
	return nil
}

func (s *SCIM) end(ctx context.Context, p *people.Provider, found []people.Known, gone bool) error {
	const reason = "the identity provider deactivated or deleted the person (SCIM)"
	audit.NoteSessionEndReason(ctx, reason)
	return s.Ending.accounts(ctx, p, found, reason, gone)
}

// user shows a User by its names.
func (s *SCIM) user(p *people.Provider, id string, of names, active bool) user {
	return user{
		Schemas: []string{userSchema}, ID: id, ExternalID: of.ExternalID, UserName: cmp.Or(of.UserName, of.ExternalID), Active: active,
		Meta: userMeta{"User", s.Responder.Issuer + endpoint.SCIM + p.Key + "/Users/" + id},
	}
}

func readJSON(w http.ResponseWriter, r *http.Request, to any) error {
	body, err := oauth2.ReadBody(w, r)
	if err == nil {
		err = json.Unmarshal(body, to)
	}
	if err != nil {
		return &scimError{status: http.StatusBadRequest, kind: "invalidSyntax", detail: "the body is no JSON of this kind, or too large", err: err}
	}
	return nil
}

// refuse answers as RFC 7644 §3.12 says. After a failure here, the request may be sent again.
func (s *SCIM) refuse(w http.ResponseWriter, r *http.Request, err error) {
	refused, ok := errors.AsType[*scimError](err)
	if ok {
		err = &oauth2.Error{Code: "invalid_request", Description: refused.detail, Status: refused.status, Err: refused.err}
	} else {
		e := oauth2.AsError(err)
		refused = &scimError{status: e.HTTPStatus(), detail: cmp.Or(e.Description, "not possible at this moment")}
	}
	s.Responder.Trail.RecordRefusal(r, audit.Event{Kind: audit.Revocation, Err: err})
	if refused.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	if wait := lockout.RetryAfter(err); wait > 0 {
		lockout.SetRetryAfter(w, wait)
	}
	endpoint.SetRetryAfter(w.Header(), refused.status)
	answer := map[string]any{"schemas": []string{errorSchema}, "status": strconv.Itoa(refused.status), "detail": refused.detail}
	if refused.kind != "" {
		answer["scimType"] = refused.kind
	}
	s.write(w, refused.status, answer)
}

func (s *SCIM) write(w http.ResponseWriter, status int, body any) {
	s.Responder.WriteAs(w, "application/scim+json", status, body)
}
