// Package scim lets identity providers deactivate and delete people. It implements the part of SCIM 2.0 that deprovisioning
// requires (RFC 7643, RFC 7644).
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

// pathPrefix is the path prefix of the endpoints, followed by the key of the identity provider.
const pathPrefix = "/oauth2/scim/"

func init() {
	caddy.RegisterModule(new(SCIM))
	endpoint.Register("scim")
}

// SCIM lets an identity provider deactivate and delete people (RFC 7643, RFC 7644). The base URL for the provider is
// `{issuer}/oauth2/scim/{key}`; `key` is the key of the identity provider.
type SCIM struct {
	// The bearer token that the provider sends. Caddy's placeholders are supported. Required.
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
		core.Config.Logger.Warn("scim token is guessable (less than 128 bits); generate a new one with: "+client.SecretCommand, "idp", s.Provider)
	}
	handler := &service{
		Responder: core.Responder, limiter: core.Limiter, deprovisioner: core.Deprovisioner, store: core.Config.DurableStore,
		digest: client.DigestSecret(s.Token), guessable: guessable,
	}
	core.Handle(pathPrefix+s.Provider+"/", core.Accounts.Providers[s.Provider].Endpoint(handler.handle),
		http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete)
	return nil
}

// service serves the endpoints of one provider.
type service struct {
	*endpoint.Responder
	limiter       *lockout.Limiter // limits attempts with wrong tokens
	deprovisioner *deprovisioning.Deprovisioner
	store         store.Store // store of the current names of renamed Users
	digest        []byte      // digest of the token
	guessable     bool        // whether the token has less than 128 bits
}

// handle serves the SCIM endpoints of a provider.
func (s *service) handle(w http.ResponseWriter, r *http.Request, p *people.Provider) {
	err := s.checkToken(r, p)
	if err == nil {
		audit.RecordAuthenticated(r.Context())
		err = s.serve(w, r, p)
	}
	if err != nil {
		s.writeError(w, r, err)
	}
}

var errToken = &oauth2.Error{Code: "invalid_token", Description: "the bearer token is missing or wrong", Status: http.StatusUnauthorized}

// checkToken checks the bearer token. A request without a token is rejected but does not count as a failed attempt.
func (s *service) checkToken(r *http.Request, p *people.Provider) error {
	scheme, token, _ := strings.Cut(strings.Join(r.Header.Values("Authorization"), ", "), " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return errToken
	}
	err := error(errToken)
	if client.MatchesDigest(s.digest, token) {
		err = nil
	}
	return s.limiter.CountSecretAttempt(r, "scim "+p.Key, err, s.guessable)
}

func (s *service) serve(w http.ResponseWriter, r *http.Request, p *people.Provider) error {
	resource, id, one := strings.Cut(strings.TrimPrefix(r.URL.Path, pathPrefix+p.Key+"/"), "/")
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
		return &oauth2.Error{Code: "invalid_request", Description: "method not allowed for this resource", Status: http.StatusMethodNotAllowed}
	}
	return &oauth2.Error{Code: "invalid_request", Description: "unknown resource: only Users and ServiceProviderConfig are supported", Status: http.StatusNotFound}
}

// providerConfig returns the ServiceProviderConfig (RFC 7643 §5).
func providerConfig() any {
	no := map[string]any{"supported": false, "maxOperations": 0, "maxPayloadSize": 0, "maxResults": 1}
	return map[string]any{
		"schemas": []string{configSchema}, "patch": map[string]any{"supported": true}, "filter": map[string]any{"supported": true, "maxResults": 1},
		"changePassword": no, "bulk": no, "sort": no, "etag": no,
		"authenticationSchemes": []any{map[string]any{"type": "oauthbearertoken", "name": "Bearer token", "description": "the token configured with the option scim"}},
	}
}

// list returns the person in the filter if they have a gateway account (RFC 7644 §3.4.2), and nobody if there is no filter.
func (s *service) list(w http.ResponseWriter, r *http.Request, p *people.Provider) error {
	users := []user{}
	if filter := r.URL.Query().Get("filter"); filter != "" {
		of, err := parseFilter(filter)
		if err != nil {
			return err
		}
		of, accounts, err := s.identify(r.Context(), p, of)
		if err != nil {
			return err
		}
		if len(accounts) > 0 {
			resource := s.newUser(p, of.id(), of, true)
			resource.UserName = cmp.Or(of.UserName, accounts[0].UserName, accounts[0].Subject)
			users = append(users, resource)
		}
	}
	s.write(w, http.StatusOK, map[string]any{
		"schemas": []string{listSchema}, "totalResults": len(users), "startIndex": 1, "itemsPerPage": len(users), "Resources": users,
	})
	return nil
}

// create handles the creation of a User. It stores nothing, because accounts are created at sign-in.
func (s *service) create(w http.ResponseWriter, r *http.Request, p *people.Provider) error {
	of, deactivates, err := readUser(w, r)
	if err != nil {
		return err
	}
	of, accounts, err := s.identify(r.Context(), p, of)
	if err == nil && deactivates {
		err = s.deprovision(r.Context(), p, accounts, false)
	}
	if err == nil {
		resource := s.newUser(p, of.id(), of, !deactivates)
		w.Header().Set("Location", resource.Meta["location"])
		s.write(w, http.StatusCreated, resource)
	}
	return err
}

// readUser reads the names of the person in a request. deactivates reports whether the request deletes or deactivates the
// person. PATCH may omit the names.
func readUser(w http.ResponseWriter, r *http.Request) (of names, deactivates bool, err error) {
	if r.Method == http.MethodDelete || r.Method == http.MethodGet {
		return of, r.Method == http.MethodDelete, nil
	}
	var input userInput
	body, err := oauth2.ReadBody(w, r)
	if err == nil {
		err = json.Unmarshal(body, &input)
	}
	if err != nil {
		return of, false, &oauth2.Error{
			Code: "invalid_request", Description: "the body is not a valid SCIM JSON document, or too large", Err: fmt.Errorf("%w: %w", scimType("invalidSyntax"), err),
		}
	}
	if r.Method == http.MethodPatch {
		input, err = input.patchedAttributes()
	}
	of = input.names()
	if err == nil && (r.Method != http.MethodPatch || of != (names{})) {
		err = of.check()
	}
	if err == nil {
		deactivates, err = input.isInactive()
	}
	return of, deactivates, err
}

// serveUser handles requests for a User by id. DELETE and active=false end all access of the person to whom the id was issued,
// even if another person now has the same name.
func (s *service) serveUser(w http.ResponseWriter, r *http.Request, p *people.Provider, id string, issued names) error {
	to, deactivates, err := readUser(w, r)
	if err != nil {
		return err
	}
	of, accounts, err := s.findPerson(r.Context(), p, id, issued)
	if err == nil && r.Method != http.MethodGet {
		of, err = s.rename(r.Context(), p, id, of, to, accounts)
	}
	if err == nil && deactivates {
		err = s.deprovision(r.Context(), p, accounts, r.Method == http.MethodDelete)
	}
	switch {
	case err != nil:
		return err
	case r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
	default:
		s.write(w, http.StatusOK, s.newUser(p, id, of, !deactivates))
	}
	return nil
}

func (s *service) deprovision(ctx context.Context, p *people.Provider, accounts []people.StoredPerson, deleted bool) error {
	const reason = "the identity provider deactivated or deleted the person (SCIM)"
	audit.RecordSessionEndReason(ctx, reason)
	return s.deprovisioner.RevokeAccounts(ctx, p, accounts, reason, deleted)
}

// newUser returns a User with the given names.
func (s *service) newUser(p *people.Provider, id string, of names, active bool) user {
	return user{
		Schemas: []string{userSchema}, ID: id, ExternalID: of.ExternalID, UserName: cmp.Or(of.UserName, of.ExternalID), Active: active,
		Meta: map[string]string{"resourceType": "User", "location": s.Issuer + pathPrefix + p.Key + "/Users/" + id},
	}
}

// writeError sends an error response (RFC 7644 §3.12). The client may retry after a 5xx.
func (s *service) writeError(w http.ResponseWriter, r *http.Request, err error) {
	e := oauth2.AsError(err)
	s.Trail.RecordRejection(r, audit.Event{Kind: audit.KindRevocation, Err: err})
	if e.HTTPStatus() == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	endpoint.SetRetryAfter(w, err)
	body := map[string]any{
		"schemas": []string{errorSchema}, "status": strconv.Itoa(e.HTTPStatus()), "detail": cmp.Or(e.Description, "temporarily unavailable"),
	}
	if kind, ok := errors.AsType[scimType](err); ok {
		body["scimType"] = kind
	}
	s.write(w, e.HTTPStatus(), body)
}

func (s *service) write(w http.ResponseWriter, status int, body any) {
	s.WriteJSONAs(w, "application/scim+json", status, body)
}
