package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
)

// browser is a user's browser. It stores cookies.
type browser struct {
	issuer string
	http   *http.Client
	user   string
}

// newBrowser returns a browser with its own cookies that shares client's connections.
func newBrowser(issuer string, client *http.Client, user string) (*browser, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	own := *client
	own.Jar = jar
	return &browser{issuer, &own, user}, nil
}

type authorization struct {
	query    url.Values
	verifier string
}

// newAuthorization returns an authorization request with PKCE, state and the additional parameters.
func newAuthorization(scope string, more ...string) authorization {
	verifier := rand.Text() + rand.Text()
	sum := sha256.Sum256([]byte(verifier))
	query := url.Values{
		"response_type": {"code"}, "client_id": {clientID}, "redirect_uri": {redirectURI}, "scope": {scope},
		"state":          {rand.Text()},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"},
	}
	for i := 0; i < len(more); i += 2 {
		query.Set(more[i], more[i+1])
	}
	return authorization{query, verifier}
}

func (b *browser) get(ctx context.Context, address string) answer {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return answer{err: err}
	}
	return send(b.http, r)
}

func (b *browser) authorize(ctx context.Context, query url.Values) answer {
	return b.get(ctx, b.issuer+"/oauth2/authorize?"+query.Encode())
}

// code returns the authorization code in a redirect to the app, or "".
func (a answer) code() string {
	if a.location == nil || !strings.HasPrefix(a.location.String(), redirectURI) {
		return ""
	}
	return a.location.Query().Get("code")
}

// leadsToFailure reports whether the app gets a server error. Such an error is in the parameters of the redirect, not in the
// status (RFC 6749 §4.1.2.1).
func (a answer) leadsToFailure() bool {
	if a.location == nil {
		return false
	}
	failure := a.location.Query().Get("error")
	return failure == "server_error" || failure == "temporarily_unavailable"
}

// redirectsToSignIn reports whether a response redirects to the sign-in page.
func (a answer) redirectsToSignIn() bool {
	return a.location != nil && a.location.Path == "/oauth2/login"
}

var hidden = regexp.MustCompile(`name="request" value="([^"]*)"`)

// signIn sends an authorization request and the sign-in form. It returns the last response.
func (b *browser) signIn(ctx context.Context, request authorization) answer {
	first := b.authorize(ctx, request.query)
	if !first.redirectsToSignIn() {
		return first
	}
	page := b.get(ctx, first.location.String())
	field := hidden.FindStringSubmatch(page.body)
	if field == nil {
		return page
	}
	form := url.Values{"request": {html.UnescapeString(field[1])}, "username": {b.user}, "password": {password}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.issuer+"/oauth2/login", strings.NewReader(form.Encode()))
	if err != nil {
		return answer{err: err}
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", b.issuer)
	return send(b.http, r)
}

// mustSignIn signs the user in. It returns an error if the response contains no code.
func (b *browser) mustSignIn(ctx context.Context) error {
	if a := b.signIn(ctx, newAuthorization(scope)); a.code() == "" {
		return errors.New("no code after signing in: " + a.summary())
	}
	return nil
}

// mustCode returns an authorization code for the signed-in user.
func (b *browser) mustCode(ctx context.Context, request authorization) (string, error) {
	a := b.authorize(ctx, request.query)
	if a.code() == "" {
		return "", fmt.Errorf("no code: %s", a.summary())
	}
	return a.code(), nil
}
