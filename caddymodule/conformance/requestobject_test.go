package conformance

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
)

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
	q.Set("request", requestObject(q))
	p.refused(q, p.ask(q), p.mode(), "request_not_supported")
	if supported := p.discovery()["request_parameter_supported"]; supported != false {
		p.t.Errorf("request_parameter_supported %v", supported)
	}
}

// requestObject is a request as an unsigned JWT (OpenID Connect Core §6.1).
func requestObject(q url.Values) string {
	claims := map[string]string{"iss": q.Get("client_id"), "aud": issuer}
	for name := range q {
		claims[name] = q.Get(name)
	}
	text, _ := json.Marshal(claims) // strings cannot fail
	return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + base64.RawURLEncoding.EncodeToString(text) + "."
}

func moduleRequestObjectRedirectURI(p *relyingParty) {
	q := p.request(nil)
	q.Set("request", requestObject(q))
	q.Set("redirect_uri", "https://rp.example/"+unguessable())
	p.shownError(p.ask(q))
}
