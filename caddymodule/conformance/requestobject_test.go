package conformance

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/url"
	"slices"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/josetest"
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

// objectClaims are a request as a request object has it (OpenID Connect Core §6.1), in the suite
// without iss and aud where it is unsigned.
func objectClaims(q url.Values) map[string]any {
	claims := map[string]any{}
	for name := range q {
		claims[name] = q.Get(name)
	}
	return claims
}

func unsignedObject(q url.Values) string {
	text, _ := json.Marshal(objectClaims(q)) // texts cannot fail
	return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + base64.RawURLEncoding.EncodeToString(text) + "."
}

// discovers reports whether a list of the discovery document has a word.
func (p *relyingParty) discovers(list, word string) bool {
	words, _ := p.discovery()[list].([]any)
	return slices.Contains(words, any(word))
}

// skipsUnsigned ends a module, as the suite's skipTestIfNoneUnsupported does: where discovery has
// a list without none.
func (p *relyingParty) skipsUnsigned() bool {
	p.skipped = p.discovery()["request_object_signing_alg_values_supported"] != nil && !p.discovers("request_object_signing_alg_values_supported", "none")
	return p.skipped
}

// moduleRequestObject is answered, or refused as not supported: by the response_mode of the object.
func moduleRequestObject(p *relyingParty) {
	if p.skipsUnsigned() {
		return
	}
	q := p.request(nil)
	a := p.ask(objectRequest("request", unsignedObject(q), q, q))
	if p.parameters(a, p.mode()).Get("error") == "request_not_supported" {
		p.refused(q, a, p.mode(), "request_not_supported")
		p.skipped = true
		return
	}
	if p.discovery()["request_parameter_supported"] != true {
		p.t.Error("discovery does not offer it")
	}
	p.flowOf(q, a)
}

// moduleRequestObjectRedirectURI sends another redirect URI beside the object: the object's is
// used, or there is an error page.
func moduleRequestObjectRedirectURI(p *relyingParty) {
	if p.skipsUnsigned() {
		return
	}
	inside := p.request(nil)
	outside := maps.Clone(inside)
	outside.Set("redirect_uri", p.client.redirectURI+"_invalid")
	a := p.ask(objectRequest("request", unsignedObject(inside), inside, outside))
	if !p.registers {
		p.shownError(a)
		return
	}
	p.flowOf(inside, a)
}

// byReference registers a request_uri, and signs in by the request object there.
func (p *relyingParty) byReference(metadata map[string]any, object func(*relyingParty, url.Values) string) {
	p.t.Helper()
	if p.discovery()["request_uri_parameter_supported"] != true {
		p.t.Error("discovery does not offer it")
	}
	path := "/requesturi/" + unguessable()
	all := map[string]any{"request_uris": []string{p.server.URL + path}}
	maps.Copy(all, metadata)
	client := p.registered(registeredAddress, all)
	q := client.request(nil)
	uri := p.server.publish(path, object(client, q))
	client.flowOf(q, client.ask(objectRequest("request_uri", uri, q, q)))
}

func moduleRequestURIUnsigned(p *relyingParty) {
	if !p.skipsUnsigned() {
		p.byReference(nil, func(_ *relyingParty, q url.Values) string { return unsignedObject(q) })
	}
}

func moduleRequestURISigned(p *relyingParty) {
	if !p.discovers("request_object_signing_alg_values_supported", "RS256") {
		p.t.Error("discovery does not offer it")
	}
	p.byReference(map[string]any{"request_object_signing_alg": "RS256"}, func(p *relyingParty, q url.Values) string {
		claims := objectClaims(q)
		claims["iss"], claims["aud"] = p.client.id, issuer
		return josetest.SignClaims(p.t, jose.SigningKey{Algorithm: jose.RS256, Key: *p.client.key}, josetest.Header{}, claims)
	})
}
