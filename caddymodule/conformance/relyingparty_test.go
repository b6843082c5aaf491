package conformance

import (
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/josetest"
)

const (
	issuer   = "https://localhost:8443"
	fhirBase = issuer + "/fhir"
)

// oauthClient contains the credentials of a registered client.
type oauthClient struct {
	id, secret, redirectURI string
	method                  string // authentication method at the token endpoint
	key                     *jose.JSONWebKey
}

// relyingParty is a client together with its user's browser. Its methods perform the checks that modules share.
type relyingParty struct {
	*gatewaytest.Gateway
	t            testing.TB
	client       oauthClient
	responseType string
	responseMode string // "" means the default response mode
	pkce         bool
	audience     string // audience of client assertions; default: the token endpoint
	logouts      chan string
	registers    bool         // whether the client is self-registered
	server       *partyServer // web server of self-registered clients
	skipped      bool         // whether the module was skipped, which is allowed
	scope        string       // scope of launches; the default depends on the kind of launch
	opensWith    url.Values   // parameters of the launch from the EHR; nil for a standalone launch
}

func newRelyingParty(t testing.TB, g *gatewaytest.Gateway, client oauthClient) *relyingParty {
	return &relyingParty{Gateway: g.NewBrowser(), t: t, client: client, responseType: "code"}
}

// as returns a relying party for another client in the same browser.
func (p *relyingParty) as(client oauthClient) *relyingParty {
	other := *p
	other.client = client
	return &other
}

const codeVerifier = "a-code-verifier-of-the-conformance-tests-_~"

// request returns an authorization request with a new state and nonce. An empty value in change removes the parameter.
func (p *relyingParty) request(change url.Values) url.Values {
	q := url.Values{
		"response_type": {p.responseType}, "client_id": {p.client.id}, "redirect_uri": {p.client.redirectURI},
		"scope": {"openid"}, "state": {randomSecret()}, "nonce": {randomSecret()},
	}
	if p.responseMode != "" {
		q.Set("response_mode", p.responseMode)
	}
	if p.pkce {
		q.Set("code_challenge_method", "S256")
		q.Set("code_challenge", authorizetest.S256(codeVerifier))
	}
	for name, values := range change {
		q[name] = values
		if values[0] == "" {
			q.Del(name)
		}
	}
	return q
}

// authorizationResponse is the response to an authorization request: parameters for the redirect URI in one of three response
// modes, or a page.
type authorizationResponse struct {
	query, fragment, form url.Values
	status                int
	page                  string
	signIns, consents     int // number of sign-in and consent pages shown
}

// ask sends an authorization request from the browser. Alice signs in and consents to everything.
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
		a.status, a.page = r.StatusCode, gatewaytest.ReadBody(p.t, r)
		form := authorizetest.ReadForm(a.page)
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

// arrive parses the parameters added to the redirect URI. The redirect URI's own query must be preserved.
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

// partyServer is the web server of self-registered relying parties. It serves keys, request objects and logos, and receives
// back-channel logout.
type partyServer struct {
	*httptest.Server
	mu        sync.Mutex
	documents map[string]string // contents by URL path
}

// newPartyServer returns a server that sends the logout tokens posted to /logout to logouts. Clients in this process trust its
// certificate, as a gateway trusts an operator's certificate authority.
func newPartyServer(logouts chan<- string) *partyServer {
	s := &partyServer{documents: map[string]string{}}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/logout" {
			logouts <- r.PostFormValue("logout_token")
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		_, _ = w.Write([]byte(s.documents[r.URL.Path]))
	}))
	transport := http.DefaultTransport.(*http.Transport)
	authorities := x509.NewCertPool()
	authorities.AddCert(s.Certificate())
	transport.TLSClientConfig = &tls.Config{RootCAs: authorities}
	transport.DisableKeepAlives = true // otherwise, modules in different synctest bubbles would share connections
	return s
}

// publish serves a document at a path and returns its URL.
func (s *partyServer) publish(path, document string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.documents[path] = document
	return s.URL + path
}

// registrationResponse is the client information response (RFC 7591 §3.2.1).
type registrationResponse struct {
	ID           string   `json:"client_id"`
	Secret       string   `json:"client_secret"`
	Expires      *int64   `json:"client_secret_expires_at"`
	Issued       int64    `json:"client_id_issued_at"`
	URI          string   `json:"registration_client_uri"`
	Token        string   `json:"registration_access_token"`
	RedirectURIs []string `json:"redirect_uris"`
	Method       string   `json:"token_endpoint_auth_method"`
	Error        string   `json:"error"`
	Description  string   `json:"error_description"`

	JWKS    json.RawMessage `json:"jwks"`
	JWKSURI string          `json:"jwks_uri"`
}

// rsaKeys returns two keys, which all clients share because generating keys is slow.
var rsaKeys = sync.OnceValue(func() [2]*rsa.PrivateKey { return [2]*rsa.PrivateKey{josetest.NewRSA(), josetest.NewRSA()} })

// rsaKey returns a key in the format of the suite's GenerateRS256ClientJWKs or, if kid is set, of
// GenerateRS256ClientJWKsWithKeyID.
func rsaKey(which int, kid string) *jose.JSONWebKey {
	return &jose.JSONWebKey{Key: rsaKeys()[which], KeyID: kid, Algorithm: string(jose.RS256), Use: "sig"}
}

func publicSet(key *jose.JSONWebKey) jose.JSONWebKeySet {
	return jose.JSONWebKeySet{Keys: []jose.JSONWebKey{key.Public()}}
}

// registering returns a function that registers a relying party with an authentication method.
func registering(method string, metadata map[string]any) func(*relyingParty) {
	return func(p *relyingParty) {
		p.registers = true
		p.client = oauthClient{method: method}
		if method == "private_key_jwt" {
			p.client.key = rsaKey(0, "")
		}
		p.client = p.registered(registeredAddress, metadata).client
	}
}

// staticAndDynamic returns the variants static_client and dynamic_client.
func staticAndDynamic(become func(*relyingParty)) []variant {
	return []variant{{configuredClient, become}, {"registered client", func(p *relyingParty) {
		become(p)
		registering("client_secret_basic", nil)(p)
	}}}
}

// second returns another client of the same kind in the same browser. Its redirect URI has a query.
func (p *relyingParty) second() *relyingParty {
	if p.registers {
		return p.registered(secondClient.redirectURI, nil)
	}
	return p.as(secondClient)
}

const registeredAddress = "https://rp.example/registered"

// register sends metadata to the registration endpoint, as the suite's
// OIDCCCreateDynamicClientRegistrationRequest does. A nil value removes a member.
func (p *relyingParty) register(metadata map[string]any) (int, *registrationResponse) {
	p.t.Helper()
	key := p.client.key
	if key == nil {
		key = rsaKey(0, "")
	}
	all := map[string]any{
		"client_name": "Registered " + randomSecret()[:5], "grant_types": []string{"authorization_code"}, "response_types": []string{"code"},
		"redirect_uris": []string{registeredAddress}, "token_endpoint_auth_method": p.client.method, "contacts": []string{"rp@rp.example"},
		"jwks": publicSet(key),
	}
	maps.Copy(all, metadata)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	text, err := json.Marshal(all)
	if err != nil {
		p.t.Fatal(err)
	}
	path, _ := strings.CutPrefix(p.discovery()["registration_endpoint"].(string), issuer)
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(string(text)))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer sesame")
	response, got := p.Send(r), new(registrationResponse)
	body := gatewaytest.ReadBody(p.t, response)
	if err := json.Unmarshal([]byte(body), got); err != nil || response.Header.Get("Content-Type") != "application/json" {
		p.t.Fatalf("status %d: %v: %s", response.StatusCode, err, body)
	}
	return response.StatusCode, got
}

// registered registers a client and returns its relying party (RFC 7591 §3.2.1). The registration is deleted at the end of the
// test.
func (p *relyingParty) registered(redirectURI string, metadata map[string]any) *relyingParty {
	p.t.Helper()
	all := map[string]any{"redirect_uris": []string{redirectURI}}
	maps.Copy(all, metadata)
	status, got := p.register(all)
	if status != http.StatusCreated || got.ID == "" || got.Issued == 0 || got.Token == "" ||
		!slices.Equal(got.RedirectURIs, all["redirect_uris"].([]string)) || got.Method != p.client.method || !strings.HasPrefix(got.URI, issuer+"/") {
		p.t.Fatalf("status %d: %+v", status, got)
	}
	if byKey := p.client.key != nil; byKey != (got.JWKS != nil || got.JWKSURI != "") || byKey == (estimateEntropy(got.Secret) >= 128 && got.Expires != nil) {
		p.t.Fatalf("neither a secret nor keys, or both: %+v", got)
	}
	client := p.as(oauthClient{id: got.ID, secret: got.Secret, method: got.Method, key: p.client.key, redirectURI: redirectURI})
	p.t.Cleanup(func() { client.unregister(got) })
	return client
}

// unregister deletes a registration (RFC 7592 §2.3) and checks that the client is then unknown.
func (p *relyingParty) unregister(made *registrationResponse) {
	path, _ := strings.CutPrefix(made.URI, issuer)
	r := httptest.NewRequest(http.MethodDelete, path, nil)
	r.Header.Set("Authorization", "Bearer "+made.Token)
	if got := p.Send(r); got.StatusCode != http.StatusNoContent {
		p.t.Errorf("deletion: status %d", got.StatusCode)
	}
	p.shownError(p.ask(p.request(nil)))
}

func (p *relyingParty) refusedRegistration(metadata map[string]any, code string) {
	p.t.Helper()
	status, got := p.register(metadata)
	if status != http.StatusBadRequest || got.Error != code || !errorText.MatchString(got.Description) || got.ID != "" {
		p.t.Errorf("status %d: %+v", status, got)
	}
}
