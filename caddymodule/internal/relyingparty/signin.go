package relyingparty

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	josejson "github.com/go-jose/go-jose/v4/json"
	"golang.org/x/oauth2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/asciicase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/strictjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

// AuthenticationRequest contains the parameters of one sign-in (OpenID Connect Core §3.1.2.1). State, Nonce and Verifier are
// random. The caller binds them to the browser and restores them when the browser returns.
type AuthenticationRequest struct {
	State    string // identifies the response; required
	Nonce    string // binds the ID token to this sign-in; required
	Verifier string // PKCE verifier with 43 to 128 characters, used if the provider supports S256; required

	LoginHint, Prompt    string // login_hint and prompt
	UILocales, ACRValues string // ui_locales and acr_values

	EssentialACR string // space-separated acr values, one of which is required
	ACRClaim     string // claim for requesting EssentialACR even if discovery does not list it; default: acr, if discovery lists it

	OfflineAccess bool // requests a refresh token that outlives the person's existing session at the provider
	SwitchAccount bool // the person wants to sign in with an account other than the one signed in at the provider

	MaxAge string // max_age in seconds, compared with auth_time; "" means no limit

	// Extra contains additional parameters of the request, which must not be parameters of this package. It is not needed for
	// the response.
	Extra map[string]string `json:"-"`
}

func (r *AuthenticationRequest) check() error {
	switch {
	case r.State == "" || r.Nonce == "":
		return errors.New("authentication request: state or nonce is missing")
	case len(r.Verifier) < 43 || len(r.Verifier) > 128:
		return errors.New("authentication request: the PKCE verifier must have 43 to 128 characters")
	}
	_, _, err := r.maxAge()
	return err
}

// maxAge returns MaxAge as a duration and whether it is set.
func (r *AuthenticationRequest) maxAge() (age time.Duration, isSet bool, err error) {
	if r.MaxAge == "" {
		return 0, false, nil
	}
	seconds, err := strconv.ParseUint(r.MaxAge, 10, 31)
	if err != nil {
		return 0, true, fmt.Errorf("invalid max_age: %w", err)
	}
	return time.Duration(seconds) * time.Second, true, nil
}

// AuthenticationURL returns the URL to which the browser must be redirected. It fetches the discovery document if necessary.
// The error is an [Error] if the failure has a kind.
func (p *Provider) AuthenticationURL(ctx context.Context, r AuthenticationRequest) (string, error) {
	if err := r.check(); err != nil {
		return "", err
	}
	m, err := p.signInMetadata(ctx)
	if err != nil {
		return "", err
	}
	config, err := p.oauthConfig(m)
	if err != nil {
		return "", err
	}
	config.Scopes = p.config.scopes(m, r.OfflineAccess)
	options := []oauth2.AuthCodeOption{oidc.Nonce(r.Nonce)}
	if m.supportsPKCE() {
		options = append(options, oauth2.S256ChallengeOption(r.Verifier))
	}
	if p.config.RequestOfflineAccess && p.config.IsGoogle {
		options = append(options, oauth2.AccessTypeOffline)
	}
	for name, value := range r.Extra {
		options = append(options, oauth2.SetAuthURLParam(name, value))
	}
	for _, o := range []struct{ name, value string }{
		{"login_hint", r.LoginHint}, {"prompt", p.config.prompt(m, &r)}, {"max_age", r.MaxAge},
		{"ui_locales", r.UILocales}, {"acr_values", r.ACRValues}, {"claims", r.claims(m)}, {"response_mode", p.config.ResponseMode},
	} {
		if o.value != "" {
			options = append(options, oauth2.SetAuthURLParam(o.name, o.value))
		}
	}
	return config.AuthCodeURL(r.State, options...), nil
}

// prompt returns the prompt parameter. It replaces select_account with login unless the provider is known to support it, because
// other providers reject the request or sign in the previous person again. For prompt_values_supported, see OpenID Connect
// Initiating User Registration 1.0 §3.1.
func (c *Config) prompt(m *metadata, r *AuthenticationRequest) string {
	const selectAccount, login = "select_account", "login"
	words := strings.Fields(r.Prompt)
	isSupported := c.SelectAccount || slices.Contains(m.PromptValues, selectAccount)
	if r.SwitchAccount && !slices.Contains(words, "none") {
		words = append(words, selectAccount)
	}
	for i, word := range words {
		if word == selectAccount && !isSupported {
			words[i] = login
		}
	}
	slices.Sort(words)
	return strings.Join(slices.Compact(words), " ")
}

// claims returns the claims parameter (OpenID Connect Core §5.5), or "" if no claim is requested.
func (r *AuthenticationRequest) claims(m *metadata) string {
	words := strings.Fields(r.EssentialACR)
	if len(words) == 0 || r.ACRClaim == "" && !m.ClaimsParameter {
		return ""
	}
	type essential struct {
		Essential bool     `json:"essential"`
		Value     string   `json:"value,omitempty"`
		Values    []string `json:"values,omitempty"`
	}
	request := essential{Essential: true, Values: words}
	if len(words) == 1 {
		request = essential{Essential: true, Value: words[0]}
	}
	text, _ := json.Marshal(map[string]any{"id_token": map[string]essential{cmp.Or(r.ACRClaim, "acr"): request}}) // cannot fail, because all values are strings
	return string(text)
}

// EndSessionURL returns the URL to which the browser must be redirected to sign out at the provider (RP-Initiated Logout §2),
// or "" if the provider has no logout endpoint. idTokenHint is an [Identity.IDToken]. Empty parameters are omitted.
func (p *Provider) EndSessionURL(ctx context.Context, idTokenHint, postLogoutRedirectURI, state string) (string, error) {
	m, err := p.metadata.get(ctx)
	if err != nil || m.EndSessionEndpoint == "" {
		return "", err
	}
	u, err := url.Parse(m.EndSessionEndpoint)
	if err != nil {
		return "", fmt.Errorf("%w: end_session_endpoint: %w", ErrMetadata, err)
	}
	query := u.Query()
	for name, value := range map[string]string{
		"id_token_hint": idTokenHint, "client_id": p.config.ClientID,
		"post_logout_redirect_uri": postLogoutRedirectURI, "state": state,
	} {
		if value != "" {
			query.Set(name, value)
		}
	}
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// Callback contains the authentication response (OpenID Connect Core §3.1.2.5, §3.1.2.6). The caller must first check that the
// response's state belongs to this browser.
type Callback struct {
	Code             string // code parameter
	Issuer           string // iss parameter (RFC 9207)
	Error            string // error parameter
	ErrorDescription string // error_description parameter, for the log
}

// check verifies iss first, because a response that another provider relayed must not even abort the sign-in (mix-up attack,
// RFC 9207 §2.4).
func (c *Callback) check(config *Config, m *metadata) error {
	switch {
	case c.Issuer == "" && m.SendsIssuer:
		return fmt.Errorf("%w: iss is missing", ErrCallback)
	case c.Issuer != "" && !config.isIssuer(c.Issuer):
		return fmt.Errorf("%w: unexpected iss %.200q, expected %q", ErrCallback, c.Issuer, m.Issuer)
	case c.Error != "":
		return &Error{Kind: AuthorizationFailed, Code: errorCode(c.Error), Err: fmt.Errorf("%.100q: %.200q", c.Error, c.ErrorDescription)}
	case c.Code == "":
		return fmt.Errorf("%w: code is missing", ErrCallback)
	}
	return nil
}

// Exchange redeems the code, verifies the ID token and adds claims from userinfo. The error is an [Error] if the failure has a
// kind. Any other error is for the log, and the client must receive server_error.
func (p *Provider) Exchange(ctx context.Context, c Callback, r AuthenticationRequest) (*Identity, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	m, err := p.signInMetadata(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.check(&p.config, m); err != nil {
		return nil, err
	}
	requestedAt := time.Now()
	tokens, err := p.exchangeCode(ctx, m, c.Code, r.Verifier)
	if err != nil {
		return nil, err
	}
	identity, err := p.verify(ctx, m, tokens, &r)
	if err != nil {
		return nil, err
	}
	identity.RequestedAt, identity.ExpiresWithSession = requestedAt, identity.RefreshToken != "" && p.config.mayRequestOfflineAccess(m, r.OfflineAccess)
	if err := p.addClaims(ctx, m, identity, tokens.AccessToken); err != nil {
		return nil, err
	}
	p.storeAccessToken(ctx, m, tokens, identity)
	identity.ProlongsSession = identity.RefreshToken != "" && !p.config.outlivesSession(m, r.OfflineAccess)
	identity.CanIntrospect = identity.ProlongsSession && p.checkIntrospection(ctx, m, identity.RefreshToken)
	return identity, nil
}

// exchangeCode exchanges the code for tokens (OpenID Connect Core §3.1.3).
func (p *Provider) exchangeCode(ctx context.Context, m *metadata, code, verifier string) (*oauth2.Token, error) {
	config, err := p.oauthConfig(m)
	if err != nil {
		return nil, err
	}
	var options []oauth2.AuthCodeOption
	if m.supportsPKCE() {
		options = append(options, oauth2.VerifierOption(verifier))
	}
	return p.requestTokens(ctx, func(ctx context.Context) (*oauth2.Token, error) {
		return config.Exchange(ctx, code, options...)
	}, code, verifier, config.ClientSecret)
}

// requestTokens sends one request to the token endpoint. Its error does not contain the secrets.
func (p *Provider) requestTokens(ctx context.Context, ask func(context.Context) (*oauth2.Token, error), secrets ...string) (*oauth2.Token, error) {
	recorder := &recordingTransport{next: bufferedTransport{p.client, tokenEndpoint}}
	tokens, err := ask(context.WithValue(ctx, oauth2.HTTPClient, &http.Client{Transport: recorder}))
	if err != nil && recorder.status != 0 { // if a response was received
		err = tokenError(recorder.status, err, secrets...)
	}
	return tokens, err
}

// tokenError returns the error for a response that contains no tokens. The error does not contain the secrets of the request.
// It also does not contain the body of a successful response, which might contain parts of a token.
func tokenError(status int, err error, secrets ...string) *Error {
	e := &Error{Kind: TokenRejected, Status: status, Err: fmt.Errorf("%s: status %d, but the response is not a token response", tokenEndpoint, status)}
	var retrieveErr *oauth2.RetrieveError
	if !errors.As(err, &retrieveErr) {
		return e
	}
	e.Code = errorCode(cmp.Or(retrieveErr.ErrorCode, apiErrorCode(retrieveErr.Body)))
	switch {
	case retrieveErr.ErrorCode != "":
		e.Err = fmt.Errorf("%s: status %d: error %.100q: %.200q", tokenEndpoint, status, redact(retrieveErr.ErrorCode, secrets), redact(retrieveErr.ErrorDescription, secrets))
	case status >= http.StatusBadRequest:
		e.Err = fmt.Errorf("%s: status %d: body %.200q", tokenEndpoint, status, redact(string(retrieveErr.Body), secrets))
	}
	return e
}

// apiErrorCode parses the format in which Google's token endpoint reports internal failures (google.rpc.Status): {"error":
// {"code": 503, "status": "UNAVAILABLE"}}, or a reason in error.errors.
func apiErrorCode(body []byte) string {
	var response struct {
		Error struct {
			Status string
			Errors []struct{ Reason string }
		}
	}
	if json.Unmarshal(body, &response) != nil {
		return ""
	}
	code := response.Error.Status
	for _, e := range response.Error.Errors {
		code = cmp.Or(code, e.Reason)
	}
	return code
}

// redact replaces secrets in a text, both plain and form-encoded.
func redact(text string, secrets []string) string {
	for _, secret := range secrets {
		if secret != "" {
			text = strings.NewReplacer(secret, "REDACTED", url.QueryEscape(secret), "REDACTED").Replace(text)
		}
	}
	return text
}

// recordingTransport stores the response's status, which x/oauth2 does not always return.
type recordingTransport struct {
	next   http.RoundTripper
	status int
}

// RoundTrip implements [http.RoundTripper].
func (w *recordingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := w.next.RoundTrip(r)
	if err == nil {
		w.status = response.StatusCode
	}
	return response, err
}

// Leeway is the maximum clock skew of the provider (OpenID Connect Core §2).
const Leeway = time.Minute

// maxSubject is the maximum length of a sub in ASCII characters (OpenID Connect Core §2).
const maxSubject = 255

// idTokenClaims contains the claims that checkClaims needs. They are decoded strictly.
type idTokenClaims struct {
	Issuer          string   `json:"iss"`
	Subject         string   `json:"sub"`
	Tenant          string   `json:"tid"`
	Nonce           string   `json:"nonce"`
	AuthorizedParty *string  `json:"azp"`
	AccessTokenHash *string  `json:"at_hash"`
	IssuedAt        *float64 `json:"iat"`
	AuthTime        *float64 `json:"auth_time"`
}

// verify validates the ID token of a sign-in (OpenID Connect Core §3.1.3.7) or, if r is nil, of a refresh (§12.2).
func (p *Provider) verify(ctx context.Context, m *metadata, tokens *oauth2.Token, r *AuthenticationRequest) (*Identity, error) {
	raw, _ := tokens.Extra("id_token").(string)
	if raw == "" {
		return nil, fmt.Errorf("%w: the token response contains no ID token", ErrIDToken)
	}
	claims := new(idTokenClaims)
	token, err := p.verifyToken(ctx, m, raw, ErrIDToken, claims)
	if err != nil {
		return nil, err
	}
	id := &Identity{Issuer: p.config.Issuer, Subject: p.config.subject(claims.Issuer, claims.Subject), IDToken: raw, AuthTime: unixTime(claims.AuthTime), ProviderTokens: newProviderTokens(tokens)}
	var payload json.RawMessage
	if err = p.checkClaims(token, claims, tokens.AccessToken, r); err == nil {
		err = token.Claims(&payload)
	}
	if err == nil {
		id.Claims, err = decodeObject(payload)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIDToken, err)
	}
	return id, nil
}

// verifyToken checks alg, signature, iss, aud, exp and nbf. It decodes the claims again, case-sensitively and rejecting
// duplicate names, because go-oidc does neither. The error wraps defect if the token is invalid.
func (p *Provider) verifyToken(ctx context.Context, m *metadata, raw string, defect error, claims any) (*oidc.IDToken, error) {
	issuer, err := p.config.tokenIssuer(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", defect, err)
	}
	keys := &recordingKeySet{KeySet: p.keys}
	verifier := oidc.NewVerifier(issuer, keys, &oidc.Config{
		ClientID: p.config.ClientID, SupportedSigningAlgs: m.Algorithms,
		Now: func() time.Time { return time.Now().Add(-Leeway) },
	})
	token, err := verifier.Verify(ctx, raw)
	switch {
	case keys.err != nil && !isTokenDefect(keys.err):
		return nil, keys.err // the keys are unavailable; the token may be valid
	case keys.err != nil:
		err = keys.err
	case err == nil:
		var payload json.RawMessage
		if err = token.Claims(&payload); err == nil {
			err = strictjson.Unmarshal(payload, claims)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", defect, err)
	}
	return token, nil
}

// checkClaims performs the checks that go-oidc leaves to the caller.
func (p *Provider) checkClaims(token *oidc.IDToken, c *idTokenClaims, accessToken string, r *AuthenticationRequest) error {
	switch {
	case c.Issuer != token.Issuer || c.Subject != token.Subject:
		return errors.New("iss or sub is repeated with different letter case")
	case c.Subject == "" || len(c.Subject) > maxSubject:
		return fmt.Errorf("sub has an invalid length of %d bytes", len(c.Subject))
	case p.config.MultiTenant && c.Tenant != p.config.tenant(c.Issuer):
		return fmt.Errorf("tid %.100q is not the tenant of iss", c.Tenant)
	case r != nil && c.Nonce != r.Nonce:
		return errors.New("nonce does not match the request")
	}
	if err := p.checkParties(token.Audience, c.AuthorizedParty); err != nil {
		return err
	}
	if err := c.checkTimes(time.Now(), r); err != nil || c.AccessTokenHash == nil {
		return err
	}
	return token.VerifyAccessToken(accessToken)
}

// checkParties returns an error if the token was issued to another client, even if its aud also contains this client.
func (p *Provider) checkParties(audience []string, authorized *string) error {
	hasOthers := slices.ContainsFunc(audience, func(id string) bool { return id != p.config.ClientID })
	switch {
	case authorized == nil && hasOthers:
		return fmt.Errorf("azp is missing although there are several audiences %.200q", audience)
	case authorized != nil && *authorized != p.config.ClientID:
		return fmt.Errorf("unexpected azp %.200q", *authorized)
	}
	return nil
}

// checkTimes checks iat and, because the provider may have ignored max_age, auth_time.
func (c *idTokenClaims) checkTimes(now time.Time, r *AuthenticationRequest) error {
	if c.IssuedAt == nil || unixTime(c.IssuedAt).After(now.Add(Leeway)) {
		return fmt.Errorf("iat is missing or in the future: %v", unixTime(c.IssuedAt))
	}
	if r == nil {
		return nil
	}
	age, isSet, err := r.maxAge()
	switch {
	case err != nil || !isSet:
		return err
	case unixTime(c.AuthTime).Add(age + Leeway).Before(now): // an auth_time of zero means that the claim is missing
		return fmt.Errorf("auth_time is missing or older than max_age: %v", unixTime(c.AuthTime))
	}
	return nil
}

func unixTime(seconds *float64) time.Time {
	if seconds == nil {
		return time.Time{}
	}
	return time.Unix(int64(*seconds), 0)
}

// decodeObject decodes a JSON object. It preserves numbers as written and rejects duplicate names.
func decodeObject(data []byte) (object map[string]any, err error) {
	var names map[string]josejson.RawMessage
	if err := josejson.Unmarshal(data, &names); err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if err := decoder.Decode(&object); err != nil {
		return nil, err
	}
	if object == nil {
		return nil, errors.New("not a JSON object")
	}
	return object, nil
}

// addClaims adds the claims that the ID token does not contain.
func (p *Provider) addClaims(ctx context.Context, m *metadata, identity *Identity, accessToken string) error {
	if err := p.addUserinfo(ctx, m, identity, accessToken); err != nil {
		return err
	}
	return p.addGroups(ctx, identity, accessToken)
}

// addUserinfo adds the claims of userinfo (OpenID Connect Core §5.3) that the ID token does not contain. Claims of the ID token
// take precedence because they are signed, except that an address is unverified if either document denies its verification.
func (p *Provider) addUserinfo(ctx context.Context, m *metadata, identity *Identity, accessToken string) error {
	if m.UserInfoEndpoint == "" || p.config.SkipUserinfo {
		return nil
	}
	claims, err := p.userinfo(ctx, m, accessToken)
	if err != nil {
		return err
	}
	// If the response contains another person's access token, that person's name and groups must not be added (OpenID Connect
	// Core §5.3.2).
	if _, sub := p.config.account(identity.Subject); claims["sub"] != any(sub) {
		return fmt.Errorf("%w: sub does not match the ID token", ErrUserInfo)
	}
	for name, value := range claims {
		if _, ok := identity.Claims[name]; !ok && !isVerifiedMismatch(name, claims, identity.Claims) || isDenial(name, value) {
			identity.Claims[name] = value
		}
	}
	return nil
}

const verifiedSuffix = "_verified"

// isVerifiedMismatch reports whether a claim of userinfo confirms an address or number (email_verified or phone_number_verified),
// but the ID token contains a different one. ASCII case is ignored.
func isVerifiedMismatch(name string, userinfo, idToken map[string]any) bool {
	subjectClaim, isVerified := strings.CutSuffix(name, verifiedSuffix)
	idTokenValue, ok := idToken[subjectClaim]
	isConfirmation := isVerified && (userinfo[name] == true || userinfo[name] == "true")
	return isConfirmation && ok && !reflect.DeepEqual(lowerText(idTokenValue), lowerText(userinfo[subjectClaim]))
}

// isDenial reports whether a claim states that an address or number is not verified.
func isDenial(name string, value any) bool {
	return strings.HasSuffix(name, verifiedSuffix) && (value == false || value == "false")
}

// lowerText returns a text in lower case, and other values unchanged.
func lowerText(claim any) any {
	if text, ok := claim.(string); ok {
		return asciicase.Lower(text)
	}
	return claim
}

func (p *Provider) userinfo(ctx context.Context, m *metadata, accessToken string) (map[string]any, error) {
	body, header, err := p.client.get(ctx, userinfoEndpoint, m.UserInfoEndpoint, http.Header{
		"Authorization": {"Bearer " + accessToken}, "Accept": {"application/json"},
	})
	if err != nil {
		return nil, err
	}
	if kind, _, _ := mime.ParseMediaType(header.Get("Content-Type")); kind == "application/jwt" {
		return p.signedUserinfo(ctx, m, string(body))
	}
	return decodeUserinfo(body)
}

func decodeUserinfo(body []byte) (map[string]any, error) {
	claims, err := decodeObject(body)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUserInfo, err)
	}
	return claims, nil
}

// signedUserinfo decodes a userinfo response that is a JWT (OpenID Connect Core §5.3.2).
func (p *Provider) signedUserinfo(ctx context.Context, m *metadata, token string) (map[string]any, error) {
	payload, err := p.keys.verifyWithAlgorithms(ctx, strings.TrimSpace(token), m.UserinfoAlgorithms)
	switch {
	case isTokenDefect(err):
		return nil, fmt.Errorf("%w: %w", ErrUserInfo, err)
	case err != nil:
		return nil, err
	}
	claims, err := decodeUserinfo(payload)
	if err != nil {
		return nil, err
	}
	if iss, ok := claims["iss"]; ok {
		if name, _ := iss.(string); !p.config.isIssuer(name) {
			return nil, fmt.Errorf("%w: unexpected iss %.200q", ErrUserInfo, iss)
		}
	}
	audience, _ := tokenclaim.List(claims["aud"])
	if _, ok := claims["aud"]; ok && !slices.Contains(audience, p.config.ClientID) {
		return nil, fmt.Errorf("%w: unexpected aud %.200q", ErrUserInfo, claims["aud"])
	}
	return claims, nil
}

// Identity describes the person who signed in. The combination of Issuer and Subject identifies the person (OpenID Connect Core
// §5.7).
type Identity struct {
	Issuer  string // the configured issuer
	Subject string // sub of up to 255 characters, unique at the issuer; with several tenants, the tenant ID, a slash and the sub

	// Claims contains the claims of the ID token, and claims of userinfo that the ID token lacks. Their JSON types are
	// preserved, with numbers as json.Number: an email_verified of "true" remains a string.
	Claims map[string]any

	RequestedAt time.Time // time of the request to the provider; later notifications from the provider apply to this sign-in
	IDToken     string    // verified ID token, the hint for [Provider.EndSessionURL]
	AuthTime    time.Time // auth_time, or zero if it is missing

	ProviderTokens // for later requests to the provider
}

// ProviderTokens contains the tokens for later requests to the provider.
type ProviderTokens struct {
	RefreshToken       string    `json:"upstream_refresh_token,omitempty"` // latest refresh token, for [Provider.Refresh]; "" if the provider issued none
	RefreshExpiry      time.Time `json:"upstream_refresh_until,omitzero"`  // expiry of RefreshToken, if known
	ExpiresWithSession bool      `json:"upstream_brief,omitempty"`         // whether RefreshToken expires with the person's session at the provider; [AuthenticationRequest.OfflineAccess] requests a longer-lived one
	ProlongsSession    bool      `json:"upstream_bound,omitempty"`         // whether RefreshToken was issued without offline_access, so a refresh may prolong the person's session at the provider
	CanIntrospect      bool      `json:"upstream_introspects,omitempty"`   // whether the provider can introspect RefreshToken, which does not prolong the session
	AccessToken        string    `json:"upstream_access_token,omitempty"`  // access token for [Provider.Introspect], if there is no refresh token
	AccessTokenExpiry  time.Time `json:"upstream_expires,omitzero"`        // expiry of the access token, if there is no refresh token
}

// newProviderTokens returns the refresh token in a response and, if available, its expiry. Keycloak returns its lifetime as
// refresh_expires_in, which is not standardized.
func newProviderTokens(tokens *oauth2.Token) ProviderTokens {
	h := ProviderTokens{RefreshToken: tokens.RefreshToken}
	if seconds, _ := tokens.Extra("refresh_expires_in").(float64); seconds > 0 && h.RefreshToken != "" {
		h.RefreshExpiry = time.Now().Add(time.Duration(seconds) * time.Second)
	}
	return h
}
