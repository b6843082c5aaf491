package conformance

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
)

// objectRequest is a request whose parameters are in a request object. Beside it are only
// those that OAuth needs, and those whose values differ, as the suite's
// AbstractBuildRequestObjectRedirectToAuthorizationEndpoint sends them: response_mode, state
// and nonce are in the object alone.
func objectRequest(name, value string, inside, outside url.Values) url.Values {
	q := url.Values{name: {value}}
	for key := range outside {
		if slices.Contains([]string{"response_type", "client_id", "scope", "redirect_uri"}, key) || outside.Get(key) != inside.Get(key) {
			q.Set(key, outside.Get(key))
		}
	}
	return q
}

// unsignedObject is a request as an unsigned JWT (OpenID Connect Core §6.1), without iss and
// aud, as in the suite.
func unsignedObject(q url.Values) string {
	claims := map[string]string{}
	for name := range q {
		claims[name] = q.Get(name)
	}
	text, _ := json.Marshal(claims) // strings cannot fail
	return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + base64.RawURLEncoding.EncodeToString(text) + "."
}

func moduleRequestURI(p *relyingParty) {
	q := p.request(nil)
	fetched := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { fetched <- r.URL.Path }))
	defer server.Close()
	q.Set("request_uri", server.URL+"/request.jwt")
	p.refused(q, p.ask(q), p.mode(), "request_uri_not_supported")
	if len(fetched) > 0 {
		p.t.Error("the request_uri was fetched")
	}
}

func moduleRequestObject(p *relyingParty) {
	q := p.request(nil)
	p.refused(q, p.ask(objectRequest("request", unsignedObject(q), q, q)), p.mode(), "request_not_supported")
	if supported := p.discovery()["request_parameter_supported"]; supported != false {
		p.t.Errorf("request_parameter_supported %v", supported)
	}
}

func moduleRequestObjectRedirectURI(p *relyingParty) {
	inside := p.request(nil)
	outside := maps.Clone(inside)
	outside.Set("redirect_uri", p.client.redirectURI+"_invalid")
	p.shownError(p.ask(objectRequest("request", unsignedObject(inside), inside, outside)))
}
