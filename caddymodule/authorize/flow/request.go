package flow

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/consent"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
)

// authorizationRequest is a checked request (RFC 6749 §4.1.1 and §4.2.1, RFC 7636 §4.3,
// OpenID Connect Core §3.1.2.1).
type authorizationRequest struct {
	client *client.Client
	responseTarget
	authenticationParameters
	asked         string    // scope as requested
	scope         []string  // scope as granted
	until         time.Time // when offline_access ends; zero if the person did not say
	codeChallenge string
	nonce         string

	userinfoClaims, idTokenClaims []string // claims requested by name

	about        consent.About // what an answer of the person's counts for
	launch       launchContext // what the client is launched with
	essentialACR string        // that must be met; "" for any

	query string // to be checked again after signing in

	account      bool // of the account page, and no client's (accountrequest.go)
	justSignedIn bool // with each factor that they have
	askedFactor  bool // the person was asked already for all factors that the request asks for

	// once is what may be used only once, such as a request_uri. It is used when the response
	// is ready, so that earlier failures can be tried again. May be nil.
	once *singleUse
}

// markUsed uses up what may be used only once, in the same step as what comes before it.
func (req *authorizationRequest) markUsed(ctx context.Context, before ...store.Step) error {
	return req.once.use(ctx, before...)
}

type requests struct {
	fhirBase string
	accounts *people.Accounts
	clients  *client.Registry
	verifier *token.Verifier
	launches *launch.Launches
	objects  *requestObjects
}

// check reads a request from its query. If it returns no request, the error must be shown,
// not redirected (RFC 6749 §4.1.2.1).
func (q *requests) check(ctx context.Context, query string) (*authorizationRequest, error) {
	p, malformed := oauth2.QueryParameters(query)
	p, refused := q.objects.open(ctx, p)
	req, err := q.destination(ctx, p)
	if err != nil {
		return nil, err
	}
	req.query = keep(p, requestParameters...)
	if err := q.fill(ctx, req, p, refused); err != nil {
		return req, err
	}
	return req, malformed
}

// requestParameters are those of an authorization request that are read here, or in what it is
// checked by. All others are ignored (RFC 6749 §3.1), and kept nowhere.
var requestParameters = []string{
	"acr_values", "aud", "claims", "client_id", "code_challenge", "code_challenge_method", "id_token_hint", "identity_provider",
	"launch", "login_hint", "max_age", "nonce", "prompt", "redirect_uri", "request", "request_uri", "resource", "response_mode",
	"response_type", "scope", "state", "ui_locales",
}

// keep writes a query of some parameters, in ASCII.
func keep(p oauth2.Parameters, names ...string) string {
	kept := url.Values{}
	for _, name := range names {
		if value := p.Get(name); value != "" {
			kept.Set(name, value)
		}
	}
	return kept.Encode()
}

// destination finds the client and the redirect URI.
func (q *requests) destination(ctx context.Context, p oauth2.Parameters) (*authorizationRequest, error) {
	if len(p["client_id"]) != 1 || len(p["redirect_uri"]) != 1 {
		return nil, oauth2.InvalidRequest("The request must have one client_id and one redirect_uri.")
	}
	client, err := q.clients.Find(ctx, p.Get("client_id"))
	if err != nil {
		return nil, err
	}
	if client == nil {
		return nil, oauth2.InvalidRequest("The client_id is not one that is registered here.")
	}
	uri := p.Get("redirect_uri")
	if !client.AllowsRedirectURI(uri) {
		return nil, oauth2.InvalidRequest("The redirect_uri is not exactly one that is registered for this client.")
	}
	return &authorizationRequest{client: client, responseTarget: responseTarget{redirectURI: uri}}, nil
}

// fill checks everything else, state first, because errors carry it; also that the request object
// was refused.
func (q *requests) fill(ctx context.Context, req *authorizationRequest, p oauth2.Parameters, refused error) error {
	if states := p["state"]; len(states) == 1 && len(states[0]) <= oauth2.MaxParameter {
		req.state = states[0]
	}
	req.chooseModes(p)
	if err := p.Check(); err != nil {
		return err
	}
	if refused != nil {
		return refused
	}
	for _, check := range []func(*authorizationRequest, oauth2.Parameters) error{
		checkResponseType, checkResponseMode, checkPKCE, q.checkAudience, checkScope, checkState,
		q.checkProvider, checkNonce, checkImplicit, checkPrompt, checkClaims,
	} {
		if err := check(req, p); err != nil {
			return err
		}
	}
	if err := q.checkHint(ctx, req, p); err != nil {
		return err
	}
	return q.checkLaunch(ctx, req, p)
}

func checkNonce(req *authorizationRequest, p oauth2.Parameters) error {
	if req.nonce = p.Get("nonce"); !utf8.ValidString(req.nonce) {
		return oauth2.InvalidRequest("nonce must be UTF-8, as the ID token is")
	}
	return nil
}

// checkProvider refuses a provider that the client does not allow.
func (q *requests) checkProvider(req *authorizationRequest, p oauth2.Parameters) error {
	req.identityProvider = p.Get("identity_provider")
	if req.identityProvider != "" && !q.accounts.Ways(req.client.IdentityProviders).Has(req.identityProvider) {
		return oauth2.InvalidRequest("identity_provider is not one that this client may use")
	}
	return nil
}

// checkPKCE accepts S256 alone: plain does not protect from those who can read the request.
func checkPKCE(req *authorizationRequest, p oauth2.Parameters) error {
	challenge, method := p.Get("code_challenge"), p.Get("code_challenge_method")
	switch {
	case challenge == "" && method == "":
		if req.client.RequiresPKCE() && req.responseType == "code" {
			return oauth2.InvalidRequest("this client must send a code_challenge")
		}
		return nil
	case method == "":
		return oauth2.InvalidRequest("code_challenge needs code_challenge_method")
	case method != "S256":
		return oauth2.InvalidRequest("code_challenge_method must be S256")
	case challenge == "":
		return oauth2.InvalidRequest("code_challenge_method needs code_challenge")
	case !oauth2.ValidChallenge(challenge):
		return oauth2.InvalidRequest("code_challenge must be a SHA-256 in base64url, 43 characters")
	}
	req.codeChallenge = challenge
	return nil
}

// checkAudience refuses a token for another FHIR server. SMART apps name theirs (SMART App
// Launch 2.2, aud); a mismatch reveals a counterfeit server.
func (q *requests) checkAudience(_ *authorizationRequest, p oauth2.Parameters) error {
	aud := p.Get("aud")
	if aud != "" && strings.TrimSuffix(aud, "/") != q.fhirBase {
		return oauth2.InvalidRequest("aud is not the FHIR server that this authorization server is for")
	}
	return token.CheckResource(p, q.fhirBase)
}

func checkScope(req *authorizationRequest, p oauth2.Parameters) (err error) {
	if req.asked = p.Get("scope"); req.asked == "" {
		req.asked = "openid"
	}
	if req.scope, err = req.client.GrantScope(req.asked); err != nil {
		return err
	}
	if req.responseType != "code" {
		req.scope = client.WithoutRefresh(req.scope)
	}
	req.scope = slices.DeleteFunc(slices.Clone(req.scope), client.IsSystemScope)
	if len(req.scope) == 0 { // a token has at least one (RFC 6749 §3.3)
		return oauth2.InvalidScope(errors.New("only system scopes, or refresh tokens, which this response_type does not give, are left of it"))
	}
	return nil
}

// checkState refuses JSON, even if URL-encoded twice: the interface wants Base64, unless the
// client has the option to send it.
func checkState(req *authorizationRequest, p oauth2.Parameters) error {
	if req.client.JSONState {
		return nil
	}
	decoded, err := url.QueryUnescape(p.Get("state"))
	if isJSON(p.Get("state")) || err == nil && isJSON(decoded) {
		return oauth2.InvalidRequest("state must not be JSON; send it as Base64")
	}
	return nil
}

func isJSON(text string) bool {
	text = strings.TrimLeft(text, " \t\r\n")
	return (strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[")) && json.Valid([]byte(text))
}

// isInterceptable reports whether another app could use the response: any app on a device can
// listen on loopback or claim a private-use scheme (RFC 8252 §8.6). Without the client's
// credentials a code is of no use to it.
func (req *authorizationRequest) isInterceptable() bool {
	if !req.client.Public() && req.responseType == "code" {
		return false
	}
	return client.IsInterceptable(req.redirectURI)
}

// username is what the sign-in page suggests.
func (q *requests) username(req *authorizationRequest) string {
	if req.loginHint == "" && len(req.subjects) == 1 && q.accounts.Directory.Users[req.subjects[0]] != nil {
		return req.subjects[0]
	}
	return req.loginHint
}
