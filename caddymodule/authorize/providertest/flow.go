package providertest

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/josetest"
)

// Authorize sends an authentication request to the provider, without a network, and returns the parameters of the redirect back
// to the client.
func (p *Provider) Authorize(tb testing.TB, address string) url.Values {
	tb.Helper()
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequestWithContext(tb.Context(), http.MethodGet, address, nil))
	response := w.Result()
	location, err := response.Location()
	if err != nil {
		tb.Fatalf("authorization endpoint: status %d, error %v", response.StatusCode, err)
	}
	return location.Query()
}

// authorize responds with a redirect immediately. It shows no page.
func (p *Provider) authorize(w http.ResponseWriter, r *http.Request) {
	s, q := p.currentSettings(), r.Form
	redirect, err := url.Parse(q.Get("redirect_uri"))
	if err != nil || !redirect.IsAbs() || q.Get("client_id") != s.ClientID {
		http.Error(w, "wrong client_id or redirect_uri", http.StatusBadRequest)
		return
	}
	answer := redirect.Query()
	answer.Set("state", q.Get("state"))
	if supported, changed := s.Metadata["authorization_response_iss_parameter_supported"]; !changed || supported != nil {
		answer.Set("iss", p.Issuer)
	}
	switch {
	case s.AuthorizationError != "":
		answer.Set("error", s.AuthorizationError)
	case q.Get("response_type") != "code" || !strings.Contains(" "+q.Get("scope")+" ", " openid "):
		answer.Set("error", "invalid_request")
	default:
		answer.Set("code", p.newCode(s, q))
	}
	redirect.RawQuery = answer.Encode()
	http.Redirect(w, r, redirect.String(), http.StatusFound)
}

func (p *Provider) newCode(s Settings, q url.Values) string {
	person := s.People[0]
	for _, other := range s.People {
		if other.Subject == q.Get("login_hint") {
			person = other
		}
	}
	code := rand.Text()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.grants[code] = grant{
		person: person, redirectURI: q.Get("redirect_uri"), nonce: q.Get("nonce"), challenge: q.Get("code_challenge"),
	}
	return code
}

// token handles the token endpoint (OpenID Connect Core §3.1.3).
func (p *Provider) token(w http.ResponseWriter, r *http.Request) {
	s := p.currentSettings()
	if !s.authenticatesClient(r) {
		writeJSON(w, http.StatusUnauthorized, map[string]string{"error": "invalid_client"})
		return
	}
	if r.PostForm.Get("grant_type") == "refresh_token" {
		p.redeemRefreshToken(w, s, r.PostForm.Get("refresh_token"))
		return
	}
	g, ok := p.redeemCode(r.PostForm.Get("code"))
	if !ok || r.PostForm.Get("grant_type") != "authorization_code" ||
		r.PostForm.Get("redirect_uri") != g.redirectURI || codeChallenge(r.PostForm.Get("code_verifier")) != g.challenge {
		writeJSON(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant"})
		return
	}
	p.sendTokens(w, s, g, rand.Text())
}

const accessLifetime = time.Hour

// introspect handles the introspection endpoint (RFC 7662). Tokens of removed people are inactive.
func (p *Provider) introspect(w http.ResponseWriter, r *http.Request) {
	s := p.currentSettings()
	if !s.authenticatesClient(r) {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	p.mu.Lock()
	token := p.accessTokens[r.PostForm.Get("token")]
	if g, ok := p.refreshTokens[r.PostForm.Get("token")]; ok {
		token = issuedToken{g.person, time.Now().Add(accessLifetime)}
	}
	p.mu.Unlock()
	if !time.Now().Before(token.expires) || !slices.ContainsFunc(s.People, func(now Person) bool { return now.Subject == token.person.Subject }) {
		writeJSON(w, http.StatusOK, map[string]any{"active": false})
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"active": true, "exp": token.expires.Unix(), "username": "of another form"})
}

// sendTokens issues tokens, stores them and sends the token response.
func (p *Provider) sendTokens(w http.ResponseWriter, s Settings, g grant, refresh string) {
	access := rand.Text()
	p.mu.Lock()
	p.accessTokens[access], p.refreshTokens[refresh] = issuedToken{g.person, time.Now().Add(accessLifetime)}, g
	p.mu.Unlock()
	answer := map[string]any{
		"access_token": access, "token_type": "Bearer", "expires_in": accessLifetime.Seconds(), "refresh_token": refresh,
		"id_token": p.idToken(s, g, access),
	}
	if s.TokenResponse != nil {
		s.TokenResponse(answer)
	}
	writeJSON(w, http.StatusOK, answer)
}

// redeemRefreshToken handles a refresh token grant (RFC 6749 §6). The new tokens contain the person's current claims.
func (p *Provider) redeemRefreshToken(w http.ResponseWriter, s Settings, token string) {
	p.mu.Lock()
	g, ok := p.refreshTokens[token]
	next := token
	if !s.ReuseRefreshTokens {
		delete(p.refreshTokens, token)
		next = rand.Text()
	}
	p.mu.Unlock()
	i := slices.IndexFunc(s.People, func(now Person) bool { return now.Subject == g.person.Subject })
	if !ok || i < 0 {
		writeJSON(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant"})
		return
	}
	g.person, g.nonce = s.People[i], ""
	p.sendTokens(w, s, g, next)
}

// revoke deletes a refresh token (RFC 7009).
func (p *Provider) revoke(w http.ResponseWriter, r *http.Request) {
	if !p.currentSettings().authenticatesClient(r) {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.refreshTokens, r.PostForm.Get("token"))
}

// authenticatesClient reports whether a request sends the client secret, if any, by exactly one method (RFC 6749 §2.3).
func (s Settings) authenticatesClient(r *http.Request) bool {
	id, secret := r.PostForm.Get("client_id"), r.PostForm.Get("client_secret")
	user, password, basic := r.BasicAuth()
	switch {
	case s.AcceptsSecret != nil:
		return !basic && id == s.ClientID && s.AcceptsSecret(secret)
	case s.ClientSecret == "":
		return !basic && secret == "" && id == s.ClientID
	case basic:
		return secret == "" && user == url.QueryEscape(s.ClientID) && password == url.QueryEscape(s.ClientSecret)
	}
	return id == s.ClientID && secret == s.ClientSecret
}

func (p *Provider) redeemCode(code string) (grant, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g, ok := p.grants[code]
	delete(p.grants, code)
	return g, ok
}

// codeChallenge returns the code_challenge of a code_verifier (RFC 7636 §4.6); "" if the verifier is "".
func codeChallenge(verifier string) string {
	if verifier == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// userinfo handles the UserInfo endpoint (OpenID Connect Core §5.3).
func (p *Provider) userinfo(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	token, ok := p.accessTokens[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	p.mu.Unlock()
	if !ok {
		w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	answer := maps.Clone(token.person.Claims)
	if answer == nil {
		answer = map[string]any{}
	}
	answer["sub"] = token.person.Subject
	if change := p.currentSettings().UserInfoResponse; change != nil {
		change(answer)
	}
	writeJSON(w, http.StatusOK, answer)
}

// endSession handles the logout endpoint (RP-Initiated Logout §2). It redirects back to the client.
func (p *Provider) endSession(w http.ResponseWriter, r *http.Request) {
	redirect, err := url.Parse(r.Form.Get("post_logout_redirect_uri"))
	if err != nil || !redirect.IsAbs() {
		fmt.Fprintln(w, "Signed out.")
		return
	}
	q := redirect.Query()
	if state := r.Form.Get("state"); state != "" {
		q.Set("state", state)
	}
	redirect.RawQuery = q.Encode()
	http.Redirect(w, r, redirect.String(), http.StatusFound)
}

// idToken returns the ID token of a grant (OpenID Connect Core §2).
func (p *Provider) idToken(s Settings, g grant, access string) string {
	now := time.Now()
	sum := sha256.Sum256([]byte(access))
	claims := maps.Clone(g.person.Claims)
	if claims == nil {
		claims = map[string]any{}
	}
	maps.Copy(claims, map[string]any{
		"iss": p.Issuer, "sub": g.person.Subject, "aud": s.ClientID,
		"iat": now.Unix(), "exp": now.Add(time.Hour).Unix(), "auth_time": now.Unix(),
		"nonce": g.nonce, "at_hash": base64.RawURLEncoding.EncodeToString(sum[:len(sum)/2]),
	})
	token := &IDToken{Algorithm: s.key().Algorithm, KeyID: s.KeyID, Key: s.key().Key, Claims: claims}
	if s.IDToken != nil {
		s.IDToken(token)
	}
	return token.sign()
}

// LogoutToken returns a back-channel logout token for Alice (OpenID Connect Back-Channel Logout 1.0 §2.4). changes alter it
// before it is signed.
func (p *Provider) LogoutToken(changes ...func(*IDToken)) string {
	p.mu.Lock()
	s := p.settings
	p.mu.Unlock()
	now := time.Now()
	token := &IDToken{Algorithm: jose.RS256, Type: "logout+jwt", KeyID: s.KeyID, Key: signingKey(), Claims: map[string]any{
		"iss": p.Issuer, "sub": Alice.Subject, "aud": s.ClientID, "iat": now.Unix(), "exp": now.Add(2 * time.Minute).Unix(), "jti": rand.Text(),
		"events": map[string]any{"http://schemas.openid.net/event/backchannel-logout": map[string]any{}},
	}}
	for _, change := range changes {
		change(token)
	}
	return token.sign()
}

// IDToken is an ID token or logout token before it is signed.
type IDToken struct {
	Algorithm jose.SignatureAlgorithm // alg header; "none" for no signature
	Type      jose.ContentType        // typ header; default: JWT
	KeyID     string                  // kid header; default: omitted
	Key       any                     // signing key: a private key, or the bytes of a secret
	Claims    map[string]any          // payload
}

// sign returns the token in compact form. It panics on errors, which are bugs in the test.
func (t *IDToken) sign() string {
	payload, err := json.Marshal(t.Claims)
	if err != nil {
		panic(err)
	}
	if t.Algorithm == "none" {
		encode := base64.RawURLEncoding.EncodeToString
		return encode([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + encode(payload) + "."
	}
	header := josetest.Header{jose.HeaderType: cmp.Or(t.Type, "JWT")}
	if t.KeyID != "" {
		header["kid"] = t.KeyID
	}
	compact, err := josetest.SignCompact(jose.SigningKey{Algorithm: t.Algorithm, Key: t.Key}, header, payload)
	if err != nil {
		panic(err)
	}
	return compact
}

// Keys of all providers: signingKey for RS256, ecKey for ES256.
var (
	signingKey = sync.OnceValue(josetest.NewRSA)
	ecKey      = sync.OnceValue(func() *ecdsa.PrivateKey { return josetest.NewEC(elliptic.P256()) })
)

// key returns the key that signs ID tokens.
func (s *Settings) key() jose.SigningKey {
	if s.KeyAlgorithm == string(jose.ES256) {
		return jose.SigningKey{Algorithm: jose.ES256, Key: ecKey()}
	}
	return jose.SigningKey{Algorithm: jose.RS256, Key: signingKey()}
}
