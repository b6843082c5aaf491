package token

import (
	"context"
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
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
}

func (e *tokenEndpoint) serve(w http.ResponseWriter, r *http.Request) {
	p, err := oauth2.FormParameters(w, r)
	var response *tokenResponse
	if err == nil {
		response, err = e.exchange(r, p)
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

func (e *tokenEndpoint) exchange(r *http.Request, p oauth2.Parameters) (*tokenResponse, error) {
	client, err := e.authenticator.Authenticate(r, p)
	if err != nil {
		return nil, err
	}
	if p.Get("grant_type") == "" {
		return nil, oauth2.InvalidRequest("grant_type is missing")
	}
	grant := findGrantType(p.Get("grant_type"))
	if err := grant.check(client); err != nil {
		return nil, err
	}
	if err := CheckResource(p, e.fhirBase); err != nil {
		return nil, err
	}
	return grant.exchange(e, r.Context(), client, p)
}

// unnamedClient is the client of a request that names none, if the grant type knows it.
func (e *tokenEndpoint) unnamedClient(ctx context.Context, p oauth2.Parameters) (*client.Client, error) {
	if grant := findGrantType(p.Get("grant_type")); grant.client != nil {
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
