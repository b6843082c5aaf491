package caddymodule

import (
	"crypto/sha256"
	"encoding/base64"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
)

const (
	conformanceIssuer = "https://localhost:8443"
	conformanceBase   = conformanceIssuer + "/fhir/R4"
)

// partyClient is a client as it is registered.
type partyClient struct {
	id, secret, redirectURI string
	method                  string // by which it proves who it is at the token endpoint
	key                     *jose.JSONWebKey
}

// relyingParty is a client and the browser of the person who uses it, before a
// gateway. What it gets it checks as the modules of the plans have in common.
type relyingParty struct {
	gateway
	client       partyClient
	responseType string
	responseMode string // "" for the usual one
	pkce         bool
	audience     string // of client assertions; default: the token endpoint
	logouts      chan string
}

// partyAt is a new browser before a gateway.
func partyAt(t testing.TB, g *gateway, client partyClient) *relyingParty {
	return &relyingParty{
		gateway: gateway{t: t, server: g.server, jar: map[string]string{}, ctx: g.ctx},
		client:  client, responseType: "code",
	}
}

// as is another client in the same browser.
func (p *relyingParty) as(client partyClient) *relyingParty {
	other := *p
	other.client = client
	return &other
}

const partyVerifier = "a-code-verifier-of-the-conformance-tests-_~"

func challengeOf(verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// request is an authorization request with a new state and nonce; change alters
// it: an empty value removes a parameter.
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
		q.Set("code_challenge", challengeOf(partyVerifier))
	}
	for name, values := range change {
		q[name] = values
		if values[0] == "" {
			q.Del(name)
		}
	}
	return q
}

// authorizationAnswer is where a request led: to the redirect URI by one of three
// ways, or to a page.
type authorizationAnswer struct {
	query, fragment, form url.Values
	status                int
	page                  string
	signIns, consents     int // what the person was asked on the way
}

// ask sends a request by the browser, in which alice signs in and allows all.
func (p *relyingParty) ask(q url.Values) *authorizationAnswer {
	p.t.Helper()
	return p.follow(p.get("/oauth2/authorize?"+q.Encode(), ""))
}

func (p *relyingParty) follow(r *http.Response) *authorizationAnswer {
	p.t.Helper()
	a := new(authorizationAnswer)
	for range 10 {
		location := r.Header.Get("Location")
		if after, ok := strings.CutPrefix(location, p.client.redirectURI); ok {
			p.arrive(a, after)
			return a
		}
		if location != "" {
			r = p.get(location, "")
			continue
		}
		a.status, a.page = r.StatusCode, read(p.t, r)
		form := readHTMLForm(a.page)
		switch {
		case r.StatusCode != http.StatusOK:
			return a
		case form.action == "/oauth2/login":
			a.signIns++
			form.fields.Set("username", "alice")
			form.fields.Set("password", "right")
		case form.action == "/oauth2/consent":
			a.consents++
			form.fields.Set("decision", "allow")
		case form.action == p.client.redirectURI:
			a.form, a.query, a.fragment = form.fields, url.Values{}, url.Values{}
			return a
		default:
			return a
		}
		r = p.post(form.action, form.fields)
	}
	p.t.Fatal("the browser is sent round in a circle")
	return nil
}

// arrive reads what was added to the redirect URI. That has a query of its own,
// where there is one, which must have been kept.
func (p *relyingParty) arrive(a *authorizationAnswer, added string) {
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

type htmlForm struct {
	action string
	fields url.Values
}

var (
	formTag  = regexp.MustCompile(`<form method="post" action="([^"]*)">`)
	inputTag = regexp.MustCompile(`<input [^>]*?name="([^"]*)"(?: value="([^"]*)")?`)
)

// readHTMLForm reads a page's form as a browser sends it.
func readHTMLForm(page string) htmlForm {
	form := htmlForm{fields: url.Values{}}
	if tag := formTag.FindStringSubmatch(page); tag != nil {
		form.action = html.UnescapeString(tag[1])
	}
	for _, input := range inputTag.FindAllStringSubmatch(page, -1) {
		form.fields.Set(html.UnescapeString(input[1]), html.UnescapeString(input[2]))
	}
	return form
}
