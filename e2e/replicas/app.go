package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/caddy-fhir/caddy-fhir/e2e/replicas/deployment"
)

// answer is the response of a gateway or of nginx.
type answer struct {
	status   int
	body     string
	location *url.URL
	err      error // set if there was no response
}

// unknown reports whether the outcome is unknown: the request may have taken effect.
func (a answer) unknown() bool { return a.err != nil || a.status >= 500 }

// summary returns the response as text for the record and for error messages.
func (a answer) summary() string {
	if a.err != nil {
		return a.err.Error()
	}
	text := a.body
	if a.location != nil {
		text = a.location.String()
	}
	text = strings.Join(strings.Fields(text), " ")
	return http.StatusText(a.status) + " " + text[:min(len(text), 160)]
}

// oauthError returns the OAuth error code in a JSON response.
func (a answer) oauthError() string {
	var body struct{ Error string }
	_ = json.Unmarshal([]byte(a.body), &body) // other responses have no error code
	return body.Error
}

// app is a confidential client that sends requests to the deployment.
type app struct {
	issuer string
	http   *http.Client
}

func send(client *http.Client, r *http.Request) answer {
	response, err := client.Do(r)
	if err != nil {
		return answer{err: err}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	location, _ := response.Location() // most responses have no Location header
	return answer{response.StatusCode, string(body), location, err}
}

// post sends a form, authenticated with the client's secret.
func (a *app) post(ctx context.Context, as, path string, form url.Values) answer {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, a.issuer+path, strings.NewReader(form.Encode()))
	if err != nil {
		return answer{err: err}
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if as != "" {
		r.SetBasicAuth(as, secret)
	}
	return send(a.http, r)
}

type tokens struct {
	Access  string `json:"access_token"`
	Refresh string `json:"refresh_token"`
}

func (a answer) tokens() (t tokens) {
	if a.err == nil && a.status == http.StatusOK {
		_ = json.Unmarshal([]byte(a.body), &t) // t is empty after an error
	}
	return t
}

func (a *app) exchange(ctx context.Context, code, verifier string) answer {
	return a.post(ctx, clientID, "/oauth2/token", url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {redirectURI}, "code_verifier": {verifier},
	})
}

func (a *app) refresh(ctx context.Context, token string) answer {
	return a.post(ctx, clientID, "/oauth2/token", url.Values{"grant_type": {"refresh_token"}, "refresh_token": {token}})
}

func (a *app) revoke(ctx context.Context, token string) answer {
	return a.post(ctx, clientID, "/oauth2/revoke", url.Values{"token": {token}})
}

// introspect introspects a token (RFC 7662). The status is 200 whether or not the token is active.
func (a *app) introspect(ctx context.Context, token string) answer {
	return a.post(ctx, clientID, "/oauth2/introspect", url.Values{"token": {token}})
}

// read reads a record that the token's scopes cover.
func (a *app) read(ctx context.Context, token string) answer {
	return a.get(ctx, "Patient?_count=1", token)
}

func (a *app) get(ctx context.Context, path, token string) answer {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, a.issuer+"/fhir/R4/"+path, nil)
	if err != nil {
		return answer{err: err}
	}
	r.Header.Set("Authorization", "Bearer "+token)
	return send(a.http, r)
}

// firstPatient returns the path of the first resource in a searchset.
func firstPatient(a answer) (string, error) {
	var bundle struct {
		Entry []struct{ Resource struct{ ID string } }
	}
	if err := json.Unmarshal([]byte(a.body), &bundle); err != nil || len(bundle.Entry) == 0 {
		return "", errors.New("no patients: " + a.summary())
	}
	return "Patient/" + bundle.Entry[0].Resource.ID, nil
}

// assert authenticates the client with a client assertion (RFC 7523).
func (a *app) assert(ctx context.Context, assertion string) answer {
	return a.post(ctx, "", "/oauth2/token", url.Values{
		"grant_type": {"client_credentials"}, "scope": {"system/*.rs"}, "client_assertion": {assertion},
		"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"},
	})
}

func (a *app) assertion() (string, error) {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: assertionKey, KeyID: "k"}}, nil)
	if err != nil {
		return "", err
	}
	return jwt.Signed(signer).Claims(map[string]any{
		"iss": keyedID, "sub": keyedID, "aud": a.issuer + "/oauth2/token", "jti": rand.Text(),
		"iat": time.Now().Unix(), "exp": time.Now().Add(2 * time.Minute).Unix(),
	}).Serialize()
}

// at returns a copy of the app that sends its requests to one gateway, bypassing nginx.
func (a *app) at(g *deployment.Gateway) *app {
	return &app{a.issuer, &http.Client{Timeout: 10 * time.Second, CheckRedirect: a.http.CheckRedirect, Transport: direct{g.Address}}}
}

// direct is a transport that sends requests to a gateway as nginx does.
type direct struct{ address string }

var transport = &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}

// RoundTrip implements http.RoundTripper.
func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	out := r.Clone(r.Context())
	out.Host = r.URL.Host
	out.URL.Scheme, out.URL.Host = "http", d.address
	out.Header.Set("X-Forwarded-Proto", "https")
	response, err := transport.RoundTrip(out)
	if err == nil {
		response.Request = r // base for relative Location headers
	}
	return response, err
}

// mustTokens returns the tokens in a response, or an error if there are none.
func mustTokens(a answer) (tokens, error) {
	t := a.tokens()
	if t.Access == "" || t.Refresh == "" {
		return t, errors.New("no tokens: " + a.summary())
	}
	return t, nil
}
