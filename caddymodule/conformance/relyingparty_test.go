package conformance

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

const (
	issuer   = "https://localhost:8443"
	fhirBase = issuer + "/fhir"
)

// oauthClient is a client as it is registered.
type oauthClient struct {
	id, secret, redirectURI string
	method                  string // by which it proves who it is at the token endpoint
	key                     *jose.JSONWebKey
}

// relyingParty is a client, and the browser of the person who uses it. It makes the
// checks that the modules of the plans have in common.
type relyingParty struct {
	*gatewaytest.Gateway
	t            testing.TB
	client       oauthClient
	responseType string
	responseMode string // "" for the usual one
	pkce         bool
	audience     string // of client assertions; default: the token endpoint
	logouts      chan string
	registers    bool         // it has registered itself
	server       *partyServer // of those that do
	skipped      bool         // the module ended early, as it may
	scope        string       // of launches; default: that of the kind of launch
	opensWith    url.Values   // what the EHR opens the client with; nil for a standalone launch
}

// newRelyingParty is a new browser before a gateway.
func newRelyingParty(t testing.TB, g *gatewaytest.Gateway, client oauthClient) *relyingParty {
	return &relyingParty{Gateway: g.NewBrowser(), t: t, client: client, responseType: "code"}
}

// as is another client in the same browser.
func (p *relyingParty) as(client oauthClient) *relyingParty {
	other := *p
	other.client = client
	return &other
}

const codeVerifier = "a-code-verifier-of-the-conformance-tests-_~"

func challengeOf(verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// request is an authorization request with a new state and nonce. An empty value in
// change removes a parameter.
func (p *relyingParty) request(change url.Values) url.Values {
	q := url.Values{
		"response_type": {p.responseType}, "client_id": {p.client.id}, "redirect_uri": {p.client.redirectURI},
		"scope": {"openid"}, "state": {unguessable()}, "nonce": {unguessable()},
	}
	if p.responseMode != "" {
		q.Set("response_mode", p.responseMode)
	}
	if p.pkce {
		q.Set("code_challenge_method", "S256")
		q.Set("code_challenge", challengeOf(codeVerifier))
	}
	for name, values := range change {
		q[name] = values
		if values[0] == "" {
			q.Del(name)
		}
	}
	return q
}

// authorizationResponse is what a request led to: the redirect URI, by one of three
// response modes, or a page.
type authorizationResponse struct {
	query, fragment, form url.Values
	status                int
	page                  string
	signIns, consents     int // what the person was asked on the way
}

// ask sends a request from the browser, where alice signs in and consents to all.
func (p *relyingParty) ask(q url.Values) *authorizationResponse {
	p.t.Helper()
	return p.follow(p.Get("/oauth2/authorize?"+q.Encode(), ""))
}

func (p *relyingParty) follow(r *http.Response) *authorizationResponse {
	p.t.Helper()
	a := new(authorizationResponse)
	for range 10 {
		location := r.Header.Get("Location")
		if after, ok := strings.CutPrefix(location, p.client.redirectURI); ok {
			p.arrive(a, after)
			return a
		}
		if location != "" {
			r = p.Get(location, "")
			continue
		}
		a.status, a.page = r.StatusCode, gatewaytest.Read(p.t, r)
		form := servertest.ReadForm(a.page)
		switch {
		case r.StatusCode != http.StatusOK:
			return a
		case form.Action == "/oauth2/login":
			a.signIns++
			form.Fields.Set("username", "alice")
			form.Fields.Set("password", "right")
		case form.Action == "/oauth2/consent":
			a.consents++
			form.Fields.Set("decision", "allow")
		case form.Action == p.client.redirectURI:
			a.form, a.query, a.fragment = form.Fields, url.Values{}, url.Values{}
			return a
		default:
			return a
		}
		r = p.Post(form.Action, form.Fields)
	}
	p.t.Fatal("the browser is sent round in a circle")
	return nil
}

// arrive reads what was added to the redirect URI, whose own query must be kept.
func (p *relyingParty) arrive(a *authorizationResponse, added string) {
	p.t.Helper()
	query, fragment, _ := strings.Cut(added, "#")
	if query != "" && !strings.HasPrefix(query, "?") && !strings.HasPrefix(query, "&") {
		p.t.Fatalf("%q was added to the redirect URI", added)
	}
	var err1, err2 error
	a.query, err1 = url.ParseQuery(strings.TrimLeft(query, "?&"))
	a.fragment, err2 = url.ParseQuery(fragment)
	if err1 != nil || err2 != nil {
		p.t.Fatalf("%q: %v %v", added, err1, err2)
	}
	a.form = url.Values{}
}
