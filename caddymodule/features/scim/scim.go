// Package scim lets identity providers deactivate and delete people. It implements the part of SCIM 2.0 that deprovisioning
// requires (RFC 7643, RFC 7644).
//
//	scim.go       option, token, requests for Users
//	user.go       attributes, filters, the person behind a User
//	record.go     storing, changing and deleting Users, which can revoke access
//	discovery.go  Groups, which are ignored, and the description of the service
package scim

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
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
	provider := core.Accounts.Providers[s.Provider]
	handler := &service{
		Responder: core.Responder, limiter: core.Limiter, path: pathPrefix + s.Provider + "/",
		users:  &users{provider: provider, store: core.Config.DurableStore, deprovisioner: core.Deprovisioner},
		digest: client.DigestSecret(s.Token), guessable: guessable,
	}
	core.Handle(handler.path, provider.Endpoint(handler.handle),
		http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete)
	return nil
}

// service serves the endpoints of one provider.
type service struct {
	*endpoint.Responder
	limiter   *lockout.Limiter // limits attempts with wrong tokens
	path      string           // path of the base URL, with a final slash
	users     *users
	digest    []byte // digest of the token
	guessable bool   // whether the token has less than 128 bits
}

// handle serves the SCIM endpoints of a provider.
func (s *service) handle(w http.ResponseWriter, r *http.Request, p *people.Provider) {
	err := s.checkToken(r, p)
	if err == nil {
		audit.RecordAuthenticated(r.Context())
		err = s.serve(w, r)
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

func (s *service) serve(w http.ResponseWriter, r *http.Request) error {
	resource, id, one := strings.Cut(strings.TrimPrefix(r.URL.Path, s.path), "/")
	switch {
	case resource == "Users" && !one && r.Method == http.MethodGet:
		return s.list(w, r)
	case resource == "Users" && !one && r.Method == http.MethodPost:
		return s.create(w, r)
	case resource == "Users" && one && r.Method != http.MethodPost:
		return s.serveUser(w, r, id)
	case resource == "Groups":
		return s.serveGroups(w, r, id)
	case discovery[resource] != nil && r.Method == http.MethodGet:
		return s.serveDiscovery(w, resource, id)
	case resource == ".search" || id == ".search":
		return errUnsupported
	case resource == "Users" || discovery[resource] != nil:
		return errMethod
	}
	return errResource
}

var (
	errMethod      = &oauth2.Error{Code: "invalid_request", Description: "method not allowed for this resource", Status: http.StatusMethodNotAllowed}
	errResource    = &oauth2.Error{Code: "invalid_request", Description: "unknown resource: only Users are supported", Status: http.StatusNotFound}
	errUnsupported = &oauth2.Error{Code: "invalid_request", Description: "unsupported: use GET with a filter", Status: http.StatusNotImplemented}
)

// list returns a page of the Users, or the User in the filter (RFC 7644 §3.4.2).
func (s *service) list(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	start := max(1, number(query, "startIndex", 1))
	found, total, err := s.search(r.Context(), query, start)
	if err != nil {
		return err
	}
	resources := []any{}
	for _, u := range found {
		resources = append(resources, s.newUser(u, query))
	}
	s.writeList(w, resources, start, total)
	return nil
}

func (s *service) search(ctx context.Context, query url.Values, start int) (found []*storedUser, total int, err error) {
	if query.Get("filter") == "" {
		return s.users.page(ctx, start, min(max(0, number(query, "count", maxPage)), maxPage))
	}
	u, err := s.users.find(ctx, query.Get("filter"))
	if u == nil || err != nil {
		return nil, 0, err
	}
	return []*storedUser{u}, 1, nil
}

// number returns a number in a query, or a default value.
func number(query url.Values, name string, missing int) int {
	n, err := strconv.Atoi(query.Get(name))
	if err != nil {
		return missing
	}
	return n
}

func (s *service) writeList(w http.ResponseWriter, resources []any, start, total int) {
	s.write(w, http.StatusOK, map[string]any{
		"schemas": []string{listSchema}, "totalResults": total, "startIndex": start, "itemsPerPage": len(resources), "Resources": resources,
	})
}

// create stores a new User. A name of another User is an error (RFC 7644 §3.3).
func (s *service) create(w http.ResponseWriter, r *http.Request) error {
	input, err := readUser(w, r)
	if err != nil {
		return err
	}
	u := s.users.newRecord()
	deactivates, err := u.apply(input)
	if err == nil {
		err = store.Retry(r.Context(), func() error { return s.users.add(r.Context(), u, deactivates) })
	}
	if err == nil {
		w.Header().Set("Location", s.location("Users", u.id))
		s.write(w, http.StatusCreated, s.newUser(u, r.URL.Query()))
	}
	return err
}

// readUser reads the User or the PATCH request in a request.
func readUser(w http.ResponseWriter, r *http.Request) (input userInput, err error) {
	body, err := oauth2.ReadBody(w, r)
	if err == nil {
		err = rawjson.NewCursor(body).Skip() // rejects duplicate names: encoding/json would use the last one
	}
	if err == nil {
		err = json.Unmarshal(body, &input)
	}
	if err != nil {
		err = &oauth2.Error{
			Code: "invalid_request", Description: "the body is not a valid SCIM JSON document, or too large", Err: fmt.Errorf("%w: %w", scimType("invalidSyntax"), err),
		}
	}
	input.isPatch = r.Method == http.MethodPatch
	return input, err
}

// serveUser handles requests for a User by id. DELETE and active=false end all access of the person to whom the id was issued,
// even if another person now has the same name.
func (s *service) serveUser(w http.ResponseWriter, r *http.Request, id string) (err error) {
	var input userInput
	if r.Method == http.MethodPut || r.Method == http.MethodPatch {
		input, err = readUser(w, r)
	}
	if err != nil {
		return err
	}
	var u *storedUser
	err = store.Retry(r.Context(), func() (err error) {
		if u, err = s.users.load(r.Context(), id); err == nil && r.Method != http.MethodGet {
			u, err = s.users.change(r.Context(), u, input, r.Method == http.MethodDelete)
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
	default:
		s.write(w, http.StatusOK, s.newUser(u, r.URL.Query()))
	}
	return nil
}

// newUser returns the resource for a User, with the attributes that the query selects.
func (s *service) newUser(u *storedUser, query url.Values) any {
	resource := map[string]any{
		"schemas": []string{userSchema}, "id": u.id, "userName": cmp.Or(u.UserName, u.ExternalID),
		"meta": map[string]string{"resourceType": "User", "location": s.location("Users", u.id)},
	}
	if u.ExternalID != "" {
		resource["externalId"] = u.ExternalID
	}
	if u.Active != nil {
		resource["active"] = *u.Active
	}
	return selectAttributes(resource, query)
}

func (s *service) location(resource, id string) string {
	return s.Issuer + s.path + resource + "/" + id
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
