package token

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// tokenResponse is the successful response of RFC 6749 §5.1.
type tokenResponse struct {
	AccessToken string `json:"access_token"`
	TokenType   string `json:"token_type"`
	ExpiresIn   int64  `json:"expires_in"`
	Scope       string `json:"scope"`
	IDToken     string `json:"id_token,omitempty"`
	Refresh     string `json:"refresh_token,omitempty"`

	*launch.Context // SMART App Launch 2.2; nil without one
}

type tokenEndpoint struct {
	*endpoint.Responder
	fhirBase      string
	authenticator *client.Authenticator
	issuer        *Issuer
	codes         *Codes
	families      *families
	grantTypes    []grantType // what it gives tokens for
	count         Count
}

// grantType is what the token endpoint gives tokens for. Its zero value is for nobody.
type grantType struct {
	rules client.GrantType // who may use it

	// exchange answers a request. nil: it is no grant_type of the token endpoint.
	exchange func(*tokenEndpoint, context.Context, *client.Client, oauth2.Parameters) (*tokenResponse, error)

	// client returns the client of a request without a client_id. nil: each request names it.
	client func(*tokenEndpoint, context.Context, oauth2.Parameters) (*client.Client, error)
}

func (e *tokenEndpoint) serve(w http.ResponseWriter, r *http.Request) {
	var p oauth2.Parameters
	err := e.count(w, r, "", true)
	if err == nil {
		p, err = e.authenticator.Form(w, r)
	}
	var response *tokenResponse
	if err == nil {
		response, err = e.exchange(w, r, p)
	}
	event := audit.Event{Kind: audit.Token, Grant: p.Get("grant_type"), Err: err}
	if err != nil {
		e.Trail.RecordRefusal(r, event)
		e.WriteError(w, r, err)
		return
	}
	e.Trail.Record(r.Context(), event)
	e.WriteJSON(w, http.StatusOK, response)
}

func (e *tokenEndpoint) exchange(w http.ResponseWriter, r *http.Request, p oauth2.Parameters) (*tokenResponse, error) {
	client, err := e.authenticator.Authenticate(r, p)
	if err == nil {
		err = e.count(w, r, client.ID, client.Public())
	}
	if err != nil {
		return nil, err
	}
	if p.Get("grant_type") == "" {
		return nil, oauth2.InvalidRequest("grant_type is missing")
	}
	grant := e.grantType(p)
	if err := grant.check(client, e.grantTypes); err != nil {
		return nil, err
	}
	if err := CheckResource(p, e.fhirBase); err != nil {
		return nil, err
	}
	return grant.exchange(e, r.Context(), client, p)
}

// unnamedClient is the client of a request that names none, if the grant type knows it.
func (e *tokenEndpoint) unnamedClient(ctx context.Context, p oauth2.Parameters) (*client.Client, error) {
	if grant := e.grantType(p); grant.client != nil {
		return grant.client(e, ctx, p)
	}
	return nil, client.ErrNoClientID
}

func (t *Issued) response(scope string, context *launch.Context) *tokenResponse {
	return &tokenResponse{
		AccessToken: t.Access, TokenType: "Bearer", ExpiresIn: int64(t.Lifetime.Seconds()),
		Scope: scope, IDToken: t.ID, Refresh: t.refresh, Context: context,
	}
}

// CheckResource refuses a resource other than the FHIR server (RFC 8707 §2).
func CheckResource(p oauth2.Parameters, fhirBase string) error {
	resource := p.Get("resource")
	if resource != "" && strings.TrimSuffix(resource, "/") != fhirBase {
		return &oauth2.Error{Code: "invalid_target", Description: "resource is not the FHIR server that this authorization server is for"}
	}
	return nil
}

// check refuses a client that may not use a grant type, or any client if it is none of the known ones.
func (g grantType) check(c *client.Client, known []grantType) error {
	switch {
	case g.exchange == nil:
		names := rulesOf(known).AtTokenEndpoint()
		last := len(names) - 1
		return &oauth2.Error{
			Code: "unsupported_grant_type", Description: "grant_type must be " + strings.Join(names[:last], ", ") + " or " + names[last],
		}
	case g.rules.Allows == nil, !g.rules.Allows(c):
		return &oauth2.Error{Code: "unauthorized_client", Description: "the client may not use this grant_type"}
	}
	return nil
}

// grantType returns that of a request, or none.
func (e *tokenEndpoint) grantType(p oauth2.Parameters) (found grantType) {
	if i := slices.IndexFunc(e.grantTypes, func(g grantType) bool { return g.rules.Name == p.Get("grant_type") }); i >= 0 {
		found = e.grantTypes[i]
	}
	return found
}

// rulesOf says which clients may use which grant types.
func rulesOf(grantTypes []grantType) client.GrantTypes {
	rules := make(client.GrantTypes, len(grantTypes))
	for i, g := range grantTypes {
		rules[i] = g.rules
	}
	return rules
}
