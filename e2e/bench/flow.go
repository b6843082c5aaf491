package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// redirectURI is the redirect URI of the clients under load. No server listens there.
const redirectURI = "https://app.example.org/callback"

// provider is an authorization server under load.
type provider struct {
	*server
	clientID, secret string
	scope            string
	idp              string // identity provider for sign-in; "" for a password at the gateway
	paths            struct{ authorize, token, introspect, userinfo string }
}

// visitor is one client under load: a browser and an app.
type visitor struct {
	*provider
	http            *http.Client
	access, refresh string
}

func (p *provider) visit() (*visitor, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	return &visitor{provider: p, http: &http.Client{
		Jar: jar, Timeout: 30 * time.Second, Transport: plainHTTPTransport{},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

var transport = &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}

// plainHTTPTransport sends https requests as plain HTTP, like a proxy that terminates TLS. TLS is excluded because it is
// implemented by Caddy, and because the peers do not support it.
type plainHTTPTransport struct{}

// RoundTrip implements http.RoundTripper.
func (plainHTTPTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme = "http"
	r.Header.Set("X-Forwarded-Proto", "https")
	return transport.RoundTrip(r)
}

// at returns the https URL of a path of the provider. The scheme is https because browsers send Secure cookies only over https.
func (p *provider) at(path string) string {
	return "https" + strings.TrimPrefix(p.url, "http") + path
}

// flow performs an authorization code flow with PKCE, state and nonce, including the token request.
func (v *visitor) flow(*load) error {
	verifier := randomText()
	sum := sha256.Sum256([]byte(verifier))
	request := url.Values{
		"response_type": {"code"}, "client_id": {v.clientID}, "redirect_uri": {redirectURI}, "scope": {v.scope},
		"state":          {randomText()},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"},
	}
	if strings.Contains(v.scope, "openid") {
		request.Set("nonce", randomText())
	}
	if v.idp != "" {
		request.Set("identity_provider", v.idp)
	}
	code, err := v.code(request)
	if err != nil {
		return err
	}
	return v.token(url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {redirectURI}, "code_verifier": {verifier},
	})
}

func randomText() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

var (
	hidden        = regexp.MustCompile(`name="request" value="([^"]*)"`)
	keycloakLogin = regexp.MustCompile(`id="kc-form-login"[^>]* action="([^"]*)"`)
)

// code sends an authorization request and follows it to the redirect URI, signing in if there is a sign-in page.
func (v *visitor) code(q url.Values) (string, error) {
	next := v.at(v.paths.authorize) + "?" + q.Encode()
	for range 10 {
		r, err := v.http.Get(next)
		if err != nil {
			return "", err
		}
		page, err := drain(r)
		if err != nil {
			return "", err
		}
		form, action := url.Values{"username": {"alice"}, "password": {"alice-demo-password"}}, ""
		if field := hidden.FindSubmatch(page); field != nil {
			form.Set("request", string(field[1]))
			action = v.at("/oauth2/login")
		} else if field := keycloakLogin.FindSubmatch(page); field != nil {
			action = html.UnescapeString(string(field[1]))
		}
		if action != "" {
			if r, err = v.http.PostForm(action, form); err != nil {
				return "", err
			}
			if page, err = drain(r); err != nil {
				return "", err
			}
		}
		to, err := r.Location()
		if err != nil {
			return "", fmt.Errorf("%s: status %d: %s", next, r.StatusCode, page)
		}
		if strings.HasPrefix(to.String(), redirectURI) {
			if code := to.Query().Get("code"); code != "" && to.Query().Get("state") == q.Get("state") {
				return code, nil
			}
			return "", fmt.Errorf("no code, but %s", to)
		}
		if next = v.at(to.RequestURI()); to.Port() != "" { // at an identity provider or this server
			next = to.String()
		}
	}
	return "", errors.New("the authorization request leads from place to place")
}

func drain(r *http.Response) ([]byte, error) {
	b, err := io.ReadAll(r.Body)
	return b, errors.Join(err, r.Body.Close())
}

// token sends a token request and stores the tokens from the response.
func (v *visitor) token(form url.Values) error {
	body, err := v.post(v.paths.token, form)
	if err != nil {
		return err
	}
	var answer struct {
		Access  string `json:"access_token"`
		Refresh string `json:"refresh_token"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return err
	}
	v.access = answer.Access
	if answer.Refresh != "" {
		v.refresh = answer.Refresh
	}
	return nil
}

func (v *visitor) post(path string, form url.Values) ([]byte, error) {
	request, err := http.NewRequest(http.MethodPost, v.at(path), strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.SetBasicAuth(v.clientID, v.secret)
	return v.ask(request)
}

func (v *visitor) ask(request *http.Request) ([]byte, error) {
	r, err := v.http.Do(request)
	if err != nil {
		return nil, err
	}
	body, err := drain(r)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: status %d: %s", request.URL, r.StatusCode, body)
	}
	return body, err
}

func (v *visitor) refreshed(*load) error {
	return v.token(url.Values{"grant_type": {"refresh_token"}, "refresh_token": {v.refresh}})
}

func (v *visitor) credentials(scope string) operation {
	return func(*load) error {
		return v.token(url.Values{"grant_type": {"client_credentials"}, "scope": {scope}})
	}
}

func (v *visitor) introspected(*load) error {
	body, err := v.post(v.paths.introspect, url.Values{"token": {v.access}})
	if err == nil && !strings.Contains(string(body), `"active":true`) {
		err = fmt.Errorf("not active: %s", body)
	}
	return err
}

func (v *visitor) readUserinfo(*load) error { return v.read(v.paths.userinfo) }

// read requests a path with the visitor's access token.
func (v *visitor) read(path string) error {
	request, err := http.NewRequest(http.MethodGet, v.at(path), nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+v.access)
	_, err = v.ask(request)
	return err
}
