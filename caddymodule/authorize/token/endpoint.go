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
	grants := map[string]func(context.Context, *client.Client, oauth2.Parameters) (*tokenResponse, error){
		"authorization_code": e.exchangeCode,
		"client_credentials": e.exchangeCredentials,
		"refresh_token":      e.exchangeRefreshToken,
	}
	client, err := e.authenticator.Authenticate(r, p)
	if err != nil {
		return nil, err
	}
	grantType := p.Get("grant_type")
	handle := grants[grantType]
	switch {
	case grantType == "":
		return nil, oauth2.InvalidRequest("grant_type is missing")
	case handle == nil:
		return nil, &oauth2.Error{Code: "unsupported_grant_type", Description: "grant_type must be authorization_code, client_credentials or refresh_token"}
	case !client.AllowsGrantType(grantType):
		return nil, &oauth2.Error{Code: "unauthorized_client", Description: "the client may not use this grant_type"}
	}
	if err := CheckResource(p, e.fhirBase); err != nil {
		return nil, err
	}
	return handle(r.Context(), client, p)
}

// exchangeCode is the authorization code grant (RFC 6749 §4.1.3). It marks the code as used
// last, so that the client can try again if anything fails before.
func (e *tokenEndpoint) exchangeCode(ctx context.Context, client *client.Client, p oauth2.Parameters) (*tokenResponse, error) {
	g, err := e.codes.redeemable(ctx, client, p)
	if err != nil {
		return nil, err
	}
	t, err := e.issuer.Issue(ctx, g, e.issuer.AccessTokenLifetime)
	if err != nil {
		return nil, err
	}
	start, err := e.families.start(ctx, g)
	if err != nil {
		return nil, err
	}
	if err := e.codes.redeem(ctx, client, g, start); err != nil {
		return nil, err
	}
	if start != nil {
		t.refresh = start.token
	}
	return t.response(g.ScopeText(), g.Launch), nil
}

// exchangeCredentials is the client credentials grant (RFC 6749 §4.4). Without a user, it
// grants system scopes only.
func (e *tokenEndpoint) exchangeCredentials(ctx context.Context, client *client.Client, p oauth2.Parameters) (*tokenResponse, error) {
	scope, err := client.GrantSystemScope(p.Get("scope"))
	if err != nil {
		return nil, err
	}
	t, err := e.issuer.issueToClient(ctx, client, scope)
	if err != nil {
		return nil, err
	}
	return t.response(strings.Join(scope, " "), nil), nil
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
