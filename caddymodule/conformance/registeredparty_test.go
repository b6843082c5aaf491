package conformance

import (
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/josetest"
)

// partyServer is the web server of relying parties that register themselves: their keys, request
// objects and logos, and the end of their back channel.
type partyServer struct {
	*httptest.Server
	mu        sync.Mutex
	documents map[string]string // by path
}

// newPartyServer has what is posted to /logout sent to logouts. Requests of this process trust
// it, as those of a gateway trust an authority of the operator's.
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
	transport.DisableKeepAlives = true // or modules in bubbles of synctest would share connections
	return s
}

// publish puts a document at a path, and returns its address.
func (s *partyServer) publish(path, document string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.documents[path] = document
	return s.URL + path
}

// registrationResponse is the client information response of RFC 7591 §3.2.1.
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

// rsaKeys are two keys of all clients, as making one takes long.
var rsaKeys = sync.OnceValue(func() [2]*rsa.PrivateKey { return [2]*rsa.PrivateKey{josetest.NewRSA(), josetest.NewRSA()} })

// rsaKey is a key as the suite's GenerateRS256ClientJWKs makes it, or with a kid
// GenerateRS256ClientJWKsWithKeyID.
func rsaKey(which int, kid string) *jose.JSONWebKey {
	return &jose.JSONWebKey{Key: rsaKeys()[which], KeyID: kid, Algorithm: string(jose.RS256), Use: "sig"}
}

func publicSet(key *jose.JSONWebKey) jose.JSONWebKeySet {
	return jose.JSONWebKeySet{Keys: []jose.JSONWebKey{key.Public()}}
}

// registering has a relying party register itself, by a method of authentication.
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

// both are the variants static_client and dynamic_client.
func both(become func(*relyingParty)) []variant {
	return []variant{{configuredClient, become}, {"registered client", func(p *relyingParty) {
		become(p)
		registering("client_secret_basic", nil)(p)
	}}}
}

// second is another client of the same kind in the same browser, whose redirect URI has a query
// of its own.
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
		"client_name": "Registered " + unguessable()[:5], "grant_types": []string{"authorization_code"}, "response_types": []string{"code"},
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
	body := gatewaytest.Read(p.t, response)
	if err := json.Unmarshal([]byte(body), got); err != nil || response.Header.Get("Content-Type") != "application/json" {
		p.t.Fatalf("status %d: %v: %s", response.StatusCode, err, body)
	}
	return response.StatusCode, got
}

// registered is a relying party that has registered itself (RFC 7591 §3.2.1). In the end it
// deletes its registration.
func (p *relyingParty) registered(redirectURI string, metadata map[string]any) *relyingParty {
	p.t.Helper()
	all := map[string]any{"redirect_uris": []string{redirectURI}}
	maps.Copy(all, metadata)
	status, got := p.register(all)
	if status != http.StatusCreated || got.ID == "" || got.Issued == 0 || got.Token == "" ||
		!slices.Equal(got.RedirectURIs, all["redirect_uris"].([]string)) || got.Method != p.client.method || !strings.HasPrefix(got.URI, issuer+"/") {
		p.t.Fatalf("status %d: %+v", status, got)
	}
	if byKey := p.client.key != nil; byKey != (got.JWKS != nil || got.JWKSURI != "") || byKey == (bitsOf(got.Secret) >= 128 && got.Expires != nil) {
		p.t.Fatalf("neither a secret nor keys, or both: %+v", got)
	}
	client := p.as(oauthClient{id: got.ID, secret: got.Secret, method: got.Method, key: p.client.key, redirectURI: redirectURI})
	p.t.Cleanup(func() { client.unregister(got) })
	return client
}

// unregister deletes a registration (RFC 7592 §2.3), after which the client is unknown.
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
