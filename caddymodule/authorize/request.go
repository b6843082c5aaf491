package authorize

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// authorizationRequest is one that was checked (RFC 6749 §4.1.1 and §4.2.1,
// RFC 7636 §4.3, OpenID Connect Core §3.1.2.1).
type authorizationRequest struct {
	client        *Client
	redirectURI   string
	responseType  string
	mode          string // how the answer is sent
	errorMode     string // and how an error is
	state         string
	asked         string   // scope as it was requested
	scope         []string // scope as it is granted
	codeChallenge string
	nonce         string

	unreadHint                    bool     // there was an id_token_hint that cannot be read any more
	subjects                      []string // who may sign in, by sub; nil where everybody may
	userinfoClaims, idTokenClaims []string // claims asked for by name

	// What chooses the way to sign in, and is passed on to an identity provider.
	identityProvider, loginHint, prompt, maxAge, uiLocales, acrValues string

	query string // as it came, to be checked again after the sign-in

	// spend uses up what brought the request here and counts once, as the reference of
	// a pushed request does. It comes last, when the answer is ready: what fails before
	// can be tried again. Nil where there is nothing to use up.
	spend func(context.Context) error
}

// spent uses up what the request came by.
func (req *authorizationRequest) spent(ctx context.Context) error {
	if req.spend == nil {
		return nil
	}
	return req.spend(ctx)
}

// requests checks authorization requests.
type requests struct {
	fhirBase string
	accounts *accounts
	clients  *registry
	verifier *verifier
}

// destination finds where the answer may be sent. Until that is known, nothing
// is: an error here must be shown, never redirected (RFC 6749 §4.1.2.1).
func (q *requests) destination(ctx context.Context, p oauth2.Parameters) (*authorizationRequest, error) {
	if len(p["client_id"]) != 1 || len(p["redirect_uri"]) != 1 {
		return nil, oauth2.InvalidRequest("The request must have one client_id and one redirect_uri.")
	}
	client, err := q.clients.client(ctx, p.Get("client_id"))
	if err != nil {
		return nil, err
	}
	if client == nil {
		return nil, oauth2.InvalidRequest("The client_id is not one that is registered here.")
	}
	uri := p.Get("redirect_uri")
	if !client.sendsTo(uri) {
		return nil, oauth2.InvalidRequest("The redirect_uri is not exactly one that is registered for this client.")
	}
	return &authorizationRequest{client: client, redirectURI: uri}, nil
}

// fill checks everything else. State comes first, because errors carry it too.
func (q *requests) fill(ctx context.Context, req *authorizationRequest, p oauth2.Parameters) error {
	if states := p["state"]; len(states) == 1 && len(states[0]) <= oauth2.MaxParameter {
		req.state = states[0]
	}
	req.chooseModes(p)
	if err := p.Check(); err != nil {
		return err
	}
	for _, check := range []func(*authorizationRequest, oauth2.Parameters) error{
		checkResponseType, checkResponseMode, checkUnsupported, checkPKCE, q.checkAudience, checkScope, checkState,
		q.checkProvider, checkNonce, checkImplicit, checkPrompt, checkClaims,
	} {
		if err := check(req, p); err != nil {
			return err
		}
	}
	return q.checkHint(ctx, req, p)
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
	if req.identityProvider != "" && !q.accounts.offer(req.client).has(req.identityProvider) {
		return oauth2.InvalidRequest("identity_provider is not one that this client may use")
	}
	return nil
}

// checkUnsupported refuses what would change the meaning of the request if it
// were ignored. A request_uri is not fetched (RFC 9700 §4.10 on SSRF).
func checkUnsupported(_ *authorizationRequest, p oauth2.Parameters) error {
	if p.Get("request") != "" {
		return &oauth2.Error{Code: "request_not_supported"}
	}
	if p.Get("request_uri") != "" {
		return &oauth2.Error{Code: "request_uri_not_supported"}
	}
	return nil
}

// checkPKCE takes S256 alone: plain protects nobody who can read the request.
func checkPKCE(req *authorizationRequest, p oauth2.Parameters) error {
	challenge, method := p.Get("code_challenge"), p.Get("code_challenge_method")
	switch {
	case challenge == "" && method == "":
		if req.client.needsPKCE() && req.responseType == "code" {
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

// checkAudience refuses a token for another FHIR server than ours: SMART apps
// name the one they mean (SMART App Launch 2.2, aud), and a mismatch is how a
// counterfeit server is noticed.
func (q *requests) checkAudience(_ *authorizationRequest, p oauth2.Parameters) error {
	aud := p.Get("aud")
	if aud != "" && strings.TrimSuffix(aud, "/") != q.fhirBase {
		return oauth2.InvalidRequest("aud is not the FHIR server that this authorization server is for")
	}
	return checkResource(p, q.fhirBase)
}

// checkResource is the same by RFC 8707 §2, at the token endpoint too.
func checkResource(p oauth2.Parameters, fhirBase string) error {
	resource := p.Get("resource")
	if resource != "" && strings.TrimSuffix(resource, "/") != fhirBase {
		return &oauth2.Error{Code: "invalid_target", Description: "resource is not the FHIR server that this authorization server is for"}
	}
	return nil
}

func checkScope(req *authorizationRequest, p oauth2.Parameters) (err error) {
	if req.asked = p.Get("scope"); req.asked == "" {
		req.asked = "openid"
	}
	if req.scope, err = grantScope(req.client, req.asked); err != nil {
		return err
	}
	if req.responseType != "code" {
		req.scope = withoutRefresh(req.scope)
	}
	switch {
	case slices.ContainsFunc(req.scope, isSystemScope):
		return invalidScope(errors.New("system scopes are for clients that act for themselves"))
	case len(req.scope) == 0: // a token has at least one (RFC 6749 §3.3)
		return invalidScope(errors.New("there are no refresh tokens by this response_type, and nothing else was asked for"))
	}
	return nil
}

func isSystemScope(scope string) bool { return strings.HasPrefix(scope, "system/") }

// invalidScope tells the client nothing of its own words: not all characters of
// theirs may stand in an error_description (RFC 6749 §5.2).
func invalidScope(err error) error {
	return &oauth2.Error{Code: "invalid_scope", Description: "the scope is malformed, or more than the client may ask for", Err: err}
}

// grantScope says what of a requested scope the client gets: the reserved ones,
// and what smart.Grant finds covered by its list.
func grantScope(client *Client, asked string) ([]string, error) {
	scopes, err := smart.ParseScopes(asked)
	if err != nil {
		return nil, invalidScope(err)
	}
	granted, err := smart.Grant(scopes, append(slices.Clone(ReservedScopes), client.Scopes...))
	if err != nil {
		return nil, invalidScope(err)
	}
	return granted, nil
}

// checkState refuses JSON, be it URL-encoded once more or not, which the interface
// wants sent as Base64.
func checkState(_ *authorizationRequest, p oauth2.Parameters) error {
	decoded, err := url.QueryUnescape(p.Get("state"))
	if isJSON(p.Get("state")) || err == nil && isJSON(decoded) {
		return oauth2.InvalidRequest("state must not be JSON; send it as Base64")
	}
	return nil
}

// isJSON says whether a text is a JSON object or array.
func isJSON(text string) bool {
	text = strings.TrimLeft(text, " \t\r\n")
	return (strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[")) && json.Valid([]byte(text))
}
