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

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/consent"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/signin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/controlchar"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/strictjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// authorizationRequest is a validated request (RFC 6749 §4.1.1 and §4.2.1, RFC 7636 §4.3, OpenID Connect Core §3.1.2.1).
type authorizationRequest struct {
	client            *client.Client
	signIn            signin.Request // who must sign in, and how
	target            responseTarget
	requestedScope    string    // scope as requested
	scope             []string  // scope as granted
	offlineExpiry     time.Time // expiry of offline_access chosen by the person; zero means the configured maximum
	codeChallenge     string
	nonce             string
	claims            requestedClaims
	fromRequestObject bool                   // parameters are from a request object
	approvalSubject   consent.PatientContext // patient to which the person's consent applies
	launch            launchContext          // launch context of the client
}

// RequestParameters lists the supported parameters of authorization requests, including parameters
// read by other packages. All others are ignored (RFC 6749 §3.1) and dropped.
var RequestParameters = []string{
	"acr_values", "aud", "claims", "client_id", "code_challenge", "code_challenge_method", "id_token_hint", "identity_provider",
	"launch", "login_hint", "max_age", "nonce", "prompt", "redirect_uri", "request", "request_uri", "resource", "response_mode",
	"response_type", "scope", "state", "ui_locales",
}

// isInterceptable reports whether another app could use the response. Any app on a device can listen on loopback or claim a
// private-use scheme (RFC 8252 §8.6), but a confidential client's code is useless without the client's credentials.
func (req *authorizationRequest) isInterceptable() bool {
	if !req.client.IsPublic() && req.target.responseType == "code" {
		return false
	}
	return client.IsInterceptable(req.target.redirectURI)
}

// checkProtection returns an error if the client must send a request object but did not (RFC 9101 §10.5). It applies to the
// request as received. A request stored by the gateway already contains the parameters of the object.
func (req *authorizationRequest) checkProtection() error {
	if req.client.RequestObjects.Required && !req.fromRequestObject {
		return oauth2.InvalidRequest("this client must send a signed request object (RFC 9101)")
	}
	return nil
}

// signInRequest returns the request for package signin, or nil if req is nil.
func (req *authorizationRequest) signInRequest() *signin.Request {
	if req == nil {
		return nil
	}
	return &req.signIn
}

// requests parses and checks authorization requests.
type requests struct {
	fhirBase    string
	accounts    *people.Accounts
	clients     *client.Registry
	verifier    *token.Verifier
	launches    *launch.Launches
	openRequest OpenRequest // may be nil
}

// check parses a request from a query. If it returns no request, the error must be shown on a page
// instead of redirected (RFC 6749 §4.1.2.1).
func (q *requests) check(ctx context.Context, query string) (*authorizationRequest, error) {
	p, malformed := oauth2.ReadCheckedQuery(query)
	q.clients.RecordClient(ctx, p.Get("client_id"))
	inObject := p.Get("request") != "" || p.Get("request_uri") != ""
	p, objectErr := q.openObject(ctx, p)
	req, err := q.parseDestination(ctx, p)
	switch {
	case err != nil && objectErr != nil: // the redirect URI may only be in the request object
		return nil, objectErr
	case err != nil:
		return nil, err
	}
	req.fromRequestObject = inObject
	req.signIn.Query = p.EncodeSelected(slices.Concat(RequestParameters, q.accounts.ForwardedParameters())...)
	if err := q.checkParameters(ctx, req, p, objectErr); err != nil {
		return req, err
	}
	return req, malformed
}

// OpenRequest replaces the parameters of a request by those of its request object, which is passed in request or request_uri
// (OpenID Connect Core §6.3.3, RFC 9101 §6.3). If it returns an error, it also returns the parameters for the error response.
// Otherwise, the result contains neither request nor request_uri.
type OpenRequest func(ctx context.Context, c *client.Client, p oauth2.Parameters) (oauth2.Parameters, error)

// openObject opens the request object of a request, if it has one.
func (q *requests) openObject(ctx context.Context, p oauth2.Parameters) (oauth2.Parameters, error) {
	if p.Get("request") == "" && p.Get("request_uri") == "" {
		return p, nil
	}
	c, err := q.clients.Find(ctx, p.Get("client_id"))
	switch {
	case c == nil || err != nil:
		return p, err
	case q.openRequest == nil:
		return p, RejectRequestObject(p)
	}
	return q.openRequest(ctx, c, p)
}

// RejectRequestObject returns the error for a request with a request object when the feature is disabled (OpenID Connect
// Core §3.1.2.6, §6).
func RejectRequestObject(p oauth2.Parameters) error {
	if p.Get("request") != "" {
		return &oauth2.Error{Code: "request_not_supported", Description: "request objects are not supported"}
	}
	return &oauth2.Error{Code: "request_uri_not_supported", Description: "request_uri must be one issued by the pushed authorization request endpoint"}
}

// parseDestination reads the client and the redirect URI.
func (q *requests) parseDestination(ctx context.Context, p oauth2.Parameters) (*authorizationRequest, error) {
	if len(p["client_id"]) != 1 || len(p["redirect_uri"]) != 1 {
		return nil, oauth2.InvalidRequest("The request must have exactly one client_id and one redirect_uri.")
	}
	client, err := q.clients.Find(ctx, p.Get("client_id"))
	if err != nil {
		return nil, err
	}
	if client == nil {
		return nil, oauth2.InvalidRequest("The client_id is not registered.")
	}
	uri := p.Get("redirect_uri")
	if !client.AllowsRedirectURI(uri) {
		audit.RecordUnregisteredRedirect(ctx, uri, client.RedirectURIs)
		return nil, oauth2.InvalidRequest("The redirect_uri does not match a registered URI of this client.")
	}
	return &authorizationRequest{
		client: client, target: responseTarget{redirectURI: uri},
		signIn: signin.Request{Destination: signin.Destination{
			ClientID: client.ID, Title: client.DisplayName(), Links: appLinks(client), Providers: client.IdentityProviders, ACR: client.ACR, Address: uri,
		}},
	}, nil
}

// checkParameters checks all other parameters. state is first because error responses contain it. objectErr is
// the error of the request object, if any.
func (q *requests) checkParameters(ctx context.Context, req *authorizationRequest, p oauth2.Parameters, objectErr error) error {
	if states := p["state"]; len(states) == 1 && len(states[0]) <= oauth2.MaxParameterSize {
		req.target.state = states[0]
	}
	req.target.chooseModes(req.client, p)
	if err := p.Check(); err != nil {
		return err
	}
	if objectErr != nil {
		return objectErr
	}
	for _, check := range []func(*authorizationRequest, oauth2.Parameters) error{
		checkResponseType, checkResponseMode, checkPKCE, q.checkAudience, checkScope, checkState,
		q.checkProvider, checkNonce, checkImplicitFlow, checkSignInParameters, checkClaims,
	} {
		if err := check(req, p); err != nil {
			return err
		}
	}
	if err := q.checkIDTokenHint(ctx, req, p); err != nil {
		return err
	}
	return q.checkLaunch(ctx, req, p)
}

func checkNonce(req *authorizationRequest, p oauth2.Parameters) error {
	if req.nonce = p.Get("nonce"); !utf8.ValidString(req.nonce) {
		return oauth2.InvalidRequest("nonce must be valid UTF-8")
	}
	return nil
}

// checkProvider returns an error for an identity provider that the client does not allow.
func (q *requests) checkProvider(req *authorizationRequest, p oauth2.Parameters) error {
	req.signIn.Parameters.IdentityProvider = p.Get("identity_provider")
	if req.signIn.Parameters.IdentityProvider != "" && !q.accounts.SignInMethods(req.client.IdentityProviders).Includes(req.signIn.Parameters.IdentityProvider) {
		return oauth2.InvalidRequest("identity_provider is not permitted for this client")
	}
	return nil
}

// checkPKCE accepts only S256, because plain does not protect against attackers who can read the request.
func checkPKCE(req *authorizationRequest, p oauth2.Parameters) error {
	challenge, method := p.Get("code_challenge"), p.Get("code_challenge_method")
	switch {
	case challenge == "" && method == "":
		if req.client.RequiresPKCE() && req.target.responseType == "code" {
			return oauth2.InvalidRequest("this client must send a code_challenge")
		}
		return nil
	case method == "":
		return oauth2.InvalidRequest("code_challenge_method is missing")
	case method != "S256":
		return oauth2.InvalidRequest("code_challenge_method must be S256")
	case challenge == "":
		return oauth2.InvalidRequest("code_challenge is missing")
	case !oauth2.IsValidChallenge(challenge):
		return oauth2.InvalidRequest("code_challenge must be a base64url-encoded SHA-256 hash of 43 characters")
	}
	req.codeChallenge = challenge
	return nil
}

// checkAudience returns an error for requests for another FHIR server. SMART apps send the URL of the FHIR server as aud (SMART
// App Launch 2.2). A mismatch reveals a counterfeit server.
func (q *requests) checkAudience(_ *authorizationRequest, p oauth2.Parameters) error {
	aud := p.Get("aud")
	if aud != "" && strings.TrimSuffix(aud, "/") != q.fhirBase {
		return oauth2.InvalidRequest("aud must be the FHIR base URL of this authorization server")
	}
	return token.CheckResource(p, q.fhirBase)
}

func checkScope(req *authorizationRequest, p oauth2.Parameters) (err error) {
	if req.requestedScope = p.Get("scope"); req.requestedScope == "" {
		req.requestedScope = "openid"
	}
	if req.scope, err = req.client.GrantScope(req.requestedScope); err != nil {
		return err
	}
	if req.target.responseType != "code" {
		req.scope = client.WithoutRefreshScopes(req.scope)
	}
	req.scope = slices.DeleteFunc(slices.Clone(req.scope), client.IsSystemScope)
	if len(req.scope) == 0 { // a token must have at least one scope (RFC 6749 §3.3)
		return oauth2.InvalidScope(errors.New("no requested scope can be granted: users cannot get system scopes, and this response_type issues no refresh tokens"))
	}
	req.signIn.Destination.NeedsFHIRUser = slices.ContainsFunc(req.scope, needsFHIRUser)
	return nil
}

// checkState returns an error if state is JSON, even if URL-encoded twice, unless the client has the compatibility
// option. Apps can send it as Base64 (docs/evidence/interface.md).
func checkState(req *authorizationRequest, p oauth2.Parameters) error {
	if req.client.HasCompat(client.CompatJSONState) {
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

// checkImplicitFlow requires a nonce for ID tokens that pass through the browser, to prevent replay
// (OpenID Connect Core §3.2.2.1).
func checkImplicitFlow(req *authorizationRequest, _ oauth2.Parameters) error {
	switch {
	case !req.target.hasResponseType("id_token"):
		return nil
	case !slices.Contains(req.scope, "openid"):
		return oauth2.InvalidRequest("response_type id_token requires the scope openid")
	case req.nonce == "":
		return oauth2.InvalidRequest("response_type id_token requires a nonce")
	}
	return nil
}

// checkSignInParameters parses the parameters that control the sign-in (OpenID Connect Core §3.1.2.1).
func checkSignInParameters(req *authorizationRequest, p oauth2.Parameters) error {
	return req.signIn.Parameters.Parse(p)
}

func checkClaims(req *authorizationRequest, p oauth2.Parameters) error {
	return req.claims.read(p.Get("claims"), req.client, &req.signIn.Parameters)
}

// checkIDTokenHint restricts the sign-in to the subject of id_token_hint (OpenID Connect Core §3.1.2.1). If the key that signed
// the hint no longer exists, a new sign-in is required.
func (q *requests) checkIDTokenHint(ctx context.Context, req *authorizationRequest, p oauth2.Parameters) error {
	raw := p.Get("id_token_hint")
	if raw == "" {
		return nil
	}
	claims, err := q.verifier.VerifyIDTokenHint(ctx, raw)
	switch {
	case errors.Is(err, keyring.ErrUnknownKey):
		req.signIn.Parameters.RequiresNewSignIn = true
		return nil
	case errors.Is(err, token.ErrInvalidHint), err == nil && claims.Audience != req.client.ID:
		return oauth2.InvalidRequest("id_token_hint is not an ID token issued by this server to this client")
	case err != nil:
		return err
	}
	return req.signIn.Parameters.RestrictTo([]any{claims.Subject})
}

// checkLaunch loads the launch that the launch parameter identifies. The authorization response marks it as used.
func (q *requests) checkLaunch(ctx context.Context, req *authorizationRequest, p oauth2.Parameters) (err error) {
	if req.launch.handle = p.Get("launch"); req.launch.handle == "" {
		return nil
	}
	req.launch.registration, err = q.launches.Find(ctx, req.launch.handle, req.client.ID)
	if err == nil {
		err = req.launch.registration.FaultError()
	}
	if err == nil && req.launch.registration.User != "" && req.signIn.Parameters.Subjects == nil {
		err = req.signIn.Parameters.RestrictTo([]any{req.launch.registration.User})
	}
	return err
}

// appLinks returns the title, links and logo of an app for the pages.
func appLinks(c *client.Client) page.AppLinks {
	links := page.AppLinks{Client: c.DisplayName(), Policy: c.Links.Policy, Terms: c.Links.Terms}
	if c.Links.Logo != "" {
		links.Logo = page.LogoOf(c.ID)
	}
	return links
}

// Response modes (OAuth 2.0 Multiple Response Type Encoding Practices §2.1, OAuth 2.0 Form Post Response Mode §2).
const (
	ModeQuery    = "query"
	ModeFragment = "fragment"
	ModeFormPost = "form_post"
)

// responseTarget is the destination and format of the response.
type responseTarget struct {
	redirectURI, responseType, state string
	mode, errorMode                  string // response modes
}

// normalizeResponseType sorts the words of a response_type, because their order is insignificant (RFC 6749 §3.1.1).
func normalizeResponseType(requested string) string {
	words := strings.Split(requested, " ")
	slices.Sort(words)
	return strings.Join(words, " ")
}

func defaultMode(responseType string) string {
	if responseType == "code" {
		return ModeQuery
	}
	return ModeFragment
}

// chooseModes selects the response modes of responses and errors. Errors for both code and token are sent in the query
// (docs/evidence/interface.md). With response_mode or another response type, errors use the mode of the response (OpenID
// Connect Core §3.2.2.6).
func (t *responseTarget) chooseModes(c *client.Client, p oauth2.Parameters) {
	requested, responseType := p.Get("response_mode"), normalizeResponseType(p.Get("response_type"))
	t.errorMode, t.mode = ModeQuery, defaultMode(responseType)
	if len(p["response_mode"]) == 1 && requested == ModeFormPost && !client.IsPrivateUse(t.redirectURI) {
		t.mode, t.errorMode = ModeFormPost, ModeFormPost
		return
	}
	isSupported := slices.Contains(client.ResponseTypes, responseType)
	own := strings.Contains(responseType, "id_token") && c.AllowsResponseType(responseType)
	if isSupported && t.mode == ModeFragment && (requested == ModeFragment || own) {
		t.errorMode = ModeFragment
	}
}

func checkResponseType(req *authorizationRequest, p oauth2.Parameters) error {
	requested := normalizeResponseType(p.Get("response_type"))
	switch {
	case requested == "":
		return oauth2.InvalidRequest("response_type is missing")
	case req.client.AllowsResponseType(requested):
		req.target.responseType = requested
		return nil
	case requested == "code" || requested == "token":
		return &oauth2.Error{Code: "unauthorized_client", Description: "response_type is not permitted for this client"}
	}
	return &oauth2.Error{Code: "unsupported_response_type", Description: "response_type is not supported for this client"}
}

// checkResponseMode returns an error for a mode that would expose tokens to servers and logs, or a code to scripts (OpenID
// Connect Core §3.2.2.5, RFC 9700 §4.3).
func checkResponseMode(req *authorizationRequest, p oauth2.Parameters) error {
	t := &req.target
	standardMode := defaultMode(t.responseType)
	switch requested := p.Get("response_mode"); requested {
	case "", standardMode:
		return nil
	case ModeFormPost:
		if client.IsPrivateUse(t.redirectURI) {
			return oauth2.InvalidRequest("response_mode form_post cannot be used with a private-use URI scheme")
		}
		if !utf8.ValidString(t.state) || strings.ContainsFunc(t.state, controlchar.Is) { // a form submission would alter the value
			return oauth2.InvalidRequest("response_mode form_post requires a state in UTF-8 without control characters")
		}
		return nil
	}
	return oauth2.InvalidRequest("response_mode must be " + standardMode + " or form_post for this response_type")
}

// hasResponseType reports whether the response type contains a word.
func (t *responseTarget) hasResponseType(word string) bool {
	return slices.Contains(strings.Fields(t.responseType), word)
}

// claimRequest is the request for one claim (OpenID Connect Core §5.5.1). Unsupported claims are
// omitted, even essential ones.
type claimRequest struct {
	Essential bool  `json:"essential"`
	Value     any   `json:"value"`
	Values    []any `json:"values"`
}

// acceptableValues returns the acceptable values, or nil if all are acceptable.
func (c *claimRequest) acceptableValues() []any {
	switch {
	case c == nil:
		return nil
	case c.Value != nil:
		return []any{c.Value}
	}
	return c.Values
}

func (c *claimRequest) isEssential() bool { return c != nil && c.Essential }

var errInvalidClaims = oauth2.InvalidRequest("claims must be a JSON object as defined in OpenID Connect Core §5.5")

// requestedClaims are the claims requested by name (OpenID Connect Core §5.5).
type requestedClaims struct {
	userinfo, idToken []string
}

// read parses the claims request parameter. It ignores claims that the client may not request, and adds restrictions on the
// sign-in (sub, acr) to how.
func (cs *requestedClaims) read(parameter string, c *client.Client, how *signin.Parameters) error {
	if parameter == "" {
		return nil
	}
	var requested map[string]json.RawMessage
	if strictjson.Unmarshal([]byte(parameter), &requested) != nil || requested == nil {
		return errInvalidClaims
	}
	for member, names := range map[string]*[]string{"userinfo": &cs.userinfo, "id_token": &cs.idToken} {
		if requested[member] == nil {
			continue
		}
		var claims map[string]*claimRequest
		if strictjson.Unmarshal(requested[member], &claims) != nil || claims == nil {
			return errInvalidClaims
		}
		var err error
		if *names, err = readClaims(claims, c, how); err != nil {
			return err
		}
	}
	return nil
}

// readClaims collects the requested claims that the client may request, and applies restrictions on
// the sign-in (sub, acr).
func readClaims(claims map[string]*claimRequest, c *client.Client, how *signin.Parameters) (names []string, err error) {
	for name, claim := range claims {
		acceptable := claim.acceptableValues()
		switch {
		case name == "sub" && acceptable != nil:
			err = how.RestrictTo(acceptable)
		case name == "acr":
			err = how.RequestACR(acceptable, claim.isEssential())
		case mayClaim(c, name):
			names = append(names, name)
		}
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(names)
	return names, nil
}

// mayClaim reports whether the client may request a claim, i.e. whether it may request the claim's scope.
func mayClaim(c *client.Client, claim string) bool {
	scope := people.ScopeOf(claim)
	return scope != "" && (slices.Contains(smart.ReservedScopes, scope) || slices.Contains(c.Scopes, scope))
}
