// Package scim lets identity providers deactivate and delete people: the part of SCIM 2.0 for
// deprovisioning (RFC 7643, RFC 7644).
package scim

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/deprovisioning"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
)

// folder is the path prefix of the endpoints of each identity provider.
const folder = "/oauth2/scim/"

func init() {
	caddy.RegisterModule(new(SCIM))
	endpoint.Register("scim")
}

// SCIM lets an identity provider deactivate and delete people (RFC 7643, RFC 7644) at `{issuer}/oauth2/scim/{key}`.
type SCIM struct {
	// The bearer token of the provider. Caddy's placeholders are supported. Required.
	Token string `json:"token,omitempty"`

	Provider string `json:"-"` // key of the identity provider
}

// CaddyModule returns the Caddy module information.
func (*SCIM) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.idp.scim", New: func() caddy.Module { return new(SCIM) }}
}

// Subdirectives implements [option.Feature]. Syntax:
//
//	scim <token>
func (s *SCIM) Subdirectives() (fields option.Block, repeatable []string) {
	return option.Block{"scim": option.Word(&s.Token, option.CheckPlaceholders)}, nil
}

// ConfigureProvider implements [fhirapp.ProviderFeature].
func (s *SCIM) ConfigureProvider(_ *fhirapp.App, c *authorize.Config, key string) (err error) {
	s.Provider = key
	c.Features = append(c.Features, s)
	s.Token, err = option.ResolveSecret("scim", s.Token)
	return err
}

// Extend implements [authorize.Feature].
func (s *SCIM) Extend(core *authorize.Core) error {
	guessable := client.IsGuessable(s.Token)
	if guessable {
		core.Config.Logger.Warn("scim of an idp has less than 128 bits, and could be guessed; make another with: "+client.SecretCommand, "idp", s.Provider)
	}
	serving := &service{
		Responder: core.Responder, limiter: core.Limiter, ending: core.Ending, durable: core.Config.Durable,
		digest: client.Digest(s.Token), guessable: guessable,
	}
	core.Handle(folder+s.Provider+"/", core.Accounts.Providers[s.Provider].Endpoint(serving.answer),
		http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete)
	return nil
}

// service serves the endpoints of a provider.
type service struct {
	*endpoint.Responder
	limiter   *lockout.Limiter // limits wrong tokens
	ending    *deprovisioning.Deprovisioner
	durable   store.Store // stores the current names of Users
	digest    []byte      // digest of the token
	guessable bool        // the token has less than 128 bits
}

// answer serves the SCIM endpoints of a provider.
func (s *service) answer(w http.ResponseWriter, r *http.Request, p *people.Provider) {
	err := s.checkToken(r, p)
	if err == nil {
		audit.RecordAuthenticated(r.Context())
		err = s.serve(w, r, p)
	}
	if err != nil {
		s.refuse(w, r, err)
	}
}

var errToken = &oauth2.Error{Code: "invalid_token", Description: "the bearer token is missing or wrong", Status: http.StatusUnauthorized}

// checkToken checks the bearer token. A request without a token is not a failed attempt.
func (s *service) checkToken(r *http.Request, p *people.Provider) error {
	scheme, token, _ := strings.Cut(strings.Join(r.Header.Values("Authorization"), ", "), " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return errToken
	}
	err := error(errToken)
	if client.SameDigest(s.digest, token) {
		err = nil
	}
	return s.limiter.AttemptSecret(r, "scim "+p.Key, err, s.guessable)
}

func (s *service) serve(w http.ResponseWriter, r *http.Request, p *people.Provider) error {
	resource, id, one := strings.Cut(strings.TrimPrefix(r.URL.Path, folder+p.Key+"/"), "/")
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
		return &oauth2.Error{Code: "invalid_request", Description: "this method is not for this address", Status: http.StatusMethodNotAllowed}
	}
	return &oauth2.Error{Code: "invalid_request", Description: "only Users and ServiceProviderConfig are here", Status: http.StatusNotFound}
}

// providerConfig returns the ServiceProviderConfig (RFC 7643 §5).
func providerConfig() any {
	no := map[string]any{"supported": false, "maxOperations": 0, "maxPayloadSize": 0, "maxResults": 1}
	return map[string]any{
		"schemas": []string{configSchema}, "patch": map[string]any{"supported": true}, "filter": map[string]any{"supported": true, "maxResults": 1},
		"changePassword": no, "bulk": no, "sort": no, "etag": no,
		"authenticationSchemes": []any{map[string]any{"type": "oauthbearertoken", "name": "Bearer token", "description": "the token of the option scim"}},
	}
}

// list reports whether the person in the filter has a gateway account (RFC 7644 §3.4.2). Unfiltered listing is not supported.
func (s *service) list(w http.ResponseWriter, r *http.Request, p *people.Provider) error {
	users := []user{}
	if filter := r.URL.Query().Get("filter"); filter != "" {
		of, err := parseFilter(filter)
		if err != nil {
			return err
		}
		of, found, err := s.identify(r.Context(), p, of)
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

// create returns a User without storing it: accounts are created at sign-in.
func (s *service) create(w http.ResponseWriter, r *http.Request, p *people.Provider) error {
	of, ends, err := readUser(w, r)
	if err != nil {
		return err
	}
	of, found, err := s.identify(r.Context(), p, of)
	if err == nil && ends {
		err = s.end(r.Context(), p, found, false)
	}
	if err == nil {
		shown := s.user(p, of.id(), of, !ends)
		w.Header().Set("Location", shown.Meta["location"])
		s.write(w, http.StatusCreated, shown)
	}
	return err
}

// readUser returns the names of the person in a request. ends reports whether the request deletes or deactivates the person.
// PATCH may omit the names.
func readUser(w http.ResponseWriter, r *http.Request) (of names, ends bool, err error) {
	if r.Method == http.MethodDelete || r.Method == http.MethodGet {
		return of, r.Method == http.MethodDelete, nil
	}
	var sent sentUser
	body, err := oauth2.ReadBody(w, r)
	if err == nil {
		err = json.Unmarshal(body, &sent)
	}
	if err != nil {
		return of, false, &oauth2.Error{
			Code: "invalid_request", Description: "the body is no JSON of this kind, or too large", Err: fmt.Errorf("%w: %w", scimType("invalidSyntax"), err),
		}
	}
	if r.Method == http.MethodPatch {
		sent, err = sent.patched()
	}
	of = sent.names()
	if err == nil && (r.Method != http.MethodPatch || of != (names{})) {
		err = of.check()
	}
	if err == nil {
		ends, err = sent.isInactive()
	}
	return of, ends, err
}

// serveUser serves a User by its id. DELETE and active=false end all access of the person to whom the id was given,
// even if another person has the names now.
func (s *service) serveUser(w http.ResponseWriter, r *http.Request, p *people.Provider, id string, given names) error {
	to, ends, err := readUser(w, r)
	if err != nil {
		return err
	}
	of, found, err := s.person(r.Context(), p, id, given)
	if err == nil && r.Method != http.MethodGet {
		of, err = s.rename(r.Context(), p, id, of, to, found)
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

func (s *service) end(ctx context.Context, p *people.Provider, found []people.StoredPerson, gone bool) error {
	const reason = "the identity provider deactivated or deleted the person (SCIM)"
	audit.RecordSessionEndReason(ctx, reason)
	return s.ending.RevokeAccounts(ctx, p, found, reason, gone)
}

// user returns a User with its names.
func (s *service) user(p *people.Provider, id string, of names, active bool) user {
	return user{
		Schemas: []string{userSchema}, ID: id, ExternalID: of.ExternalID, UserName: cmp.Or(of.UserName, of.ExternalID), Active: active,
		Meta: map[string]string{"resourceType": "User", "location": s.Issuer + folder + p.Key + "/Users/" + id},
	}
}

// refuse sends an error response (RFC 7644 §3.12). After a 5xx, the request may be retried.
func (s *service) refuse(w http.ResponseWriter, r *http.Request, err error) {
	e := oauth2.AsError(err)
	s.Trail.RecordRejection(r, audit.Event{Kind: audit.Revocation, Err: err})
	if e.HTTPStatus() == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	endpoint.SetRetryAfter(w, err)
	answer := map[string]any{
		"schemas": []string{errorSchema}, "status": strconv.Itoa(e.HTTPStatus()), "detail": cmp.Or(e.Description, "not possible at this moment"),
	}
	if kind, ok := errors.AsType[scimType](err); ok {
		answer["scimType"] = kind
	}
	s.write(w, e.HTTPStatus(), answer)
}

func (s *service) write(w http.ResponseWriter, status int, body any) {
	s.WriteAs(w, "application/scim+json", status, body)
}
