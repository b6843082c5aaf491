package token

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// userinfoEndpoint is the UserInfo endpoint (OpenID Connect Core §5.3).
type userinfoEndpoint struct {
	*endpoint.Responder
	accounts *people.Accounts
	verifier *Verifier
	clients  *client.Registry
	keys     keyring.SignerSource
}

func (e *userinfoEndpoint) serve(w http.ResponseWriter, r *http.Request) {
	token, err := e.authenticate(w, r)
	if err == nil {
		err = e.respond(w, r, token)
	}
	if err != nil {
		e.WriteError(w, r, err)
	}
}

// respond sends the claims permitted by a token as JSON, or signed for clients that registered userinfo_signed_response_alg.
func (e *userinfoEndpoint) respond(w http.ResponseWriter, r *http.Request, token *accessTokenClaims) error {
	user, names, err := e.user(r.Context(), token)
	if err != nil {
		return err
	}
	client, err := e.clients.Find(r.Context(), token.ClientID)
	if err != nil {
		return err
	}
	claims := e.accounts.Claims(user, names)
	claims["sub"] = user.ID
	if client == nil || client.UserinfoAlgorithm == "" {
		e.WriteJSON(w, http.StatusOK, claims)
		return nil
	}
	claims["iss"], claims["aud"] = e.Issuer, client.ID
	signed, err := keyring.Sign(r.Context(), e.keys, jose.SignatureAlgorithm(client.UserinfoAlgorithm), keyring.IDTokenType, claims)
	if err == nil {
		e.WriteJWT(w, signed)
	}
	return err
}

// authenticate returns the claims of the request's access token, from the header or a form (OpenID
// Connect Core §5.3.1).
func (e *userinfoEndpoint) authenticate(w http.ResponseWriter, r *http.Request) (*accessTokenClaims, error) {
	raw, err := formToken(w, r)
	if err == nil && raw == "" {
		raw, err = headerToken(r)
	}
	if err != nil {
		return nil, err
	}
	return e.tokenClaims(r.Context(), raw)
}

// formToken returns the access token of a form (RFC 6750 §2.2), or "". It returns an error if the header also contains a token,
// because an intermediary might use that one instead.
func formToken(w http.ResponseWriter, r *http.Request) (string, error) {
	if r.Method != http.MethodPost || !oauth2.IsForm(r) {
		return "", nil
	}
	p, err := oauth2.ReadCheckedForm(w, r)
	if err == nil && p.Get("access_token") != "" && r.Header.Get("Authorization") != "" {
		err = oauth2.InvalidRequest("send exactly one access token: in the Authorization header or in the form")
	}
	return p.Get("access_token"), err
}

// bearerClaims returns the claims of the access token in the Authorization header.
func (e *userinfoEndpoint) bearerClaims(r *http.Request) (*accessTokenClaims, error) {
	raw, err := headerToken(r)
	if err != nil {
		return nil, err
	}
	return e.tokenClaims(r.Context(), raw)
}

// headerToken returns the access token of the Authorization header (RFC 6750 §2.1).
func headerToken(r *http.Request) (string, error) {
	headers := r.Header.Values("Authorization")
	scheme, raw, _ := strings.Cut(strings.Join(headers, ", "), " ")
	switch {
	case !strings.EqualFold(scheme, "Bearer"):
		return "", &oauth2.Error{Status: http.StatusUnauthorized} // the response has no error code if there is no token (RFC 6750 §3.1)
	case len(headers) > 1 || len(raw) > oauth2.MaxParameterSize:
		return "", oauth2.InvalidRequest("send exactly one access token in the Authorization: Bearer header")
	}
	return strings.TrimLeft(raw, " "), nil
}

func (e *userinfoEndpoint) tokenClaims(ctx context.Context, raw string) (*accessTokenClaims, error) {
	claims, err := e.verifier.verify(ctx, raw, 0)
	switch {
	case errors.Is(err, errInvalidToken):
		return nil, errInvalidAccessToken
	case err != nil:
		return nil, err
	}
	audit.RecordClient(ctx, claims.ClientID)
	return claims, nil
}

var errInvalidAccessToken = &oauth2.Error{
	Code: "invalid_token", Status: http.StatusUnauthorized,
	Description: "the access token is invalid, expired or revoked",
}

func (e *userinfoEndpoint) user(ctx context.Context, claims *accessTokenClaims) (*people.User, []string, error) {
	scope := strings.Fields(claims.Scope)
	if !slices.Contains(scope, "openid") {
		return nil, nil, &oauth2.Error{
			Code: "insufficient_scope", Status: http.StatusForbidden,
			Description: "userinfo requires the scope openid",
		}
	}
	user, err := e.accounts.Find(ctx, claims.Subject)
	if err == nil && user == nil {
		err = errInvalidAccessToken
	}
	return user, append(people.ClaimsOfScope(scope), claims.UserinfoClaims...), err
}
