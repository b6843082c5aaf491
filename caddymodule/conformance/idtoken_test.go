package conformance

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// signInFlow is the outcome of one sign-in.
type signInFlow struct {
	*authorizationResponse
	request  url.Values
	tokens   *tokenResponse
	id       map[string]any // claims of the ID token
	userinfo map[string]any // nil where there is no access token
}

// flow signs in and checks everything that comes back.
func (p *relyingParty) flow(change url.Values) *signInFlow {
	p.t.Helper()
	q := p.request(change)
	return p.flowOf(q, p.ask(q))
}

// flowOf is flow from the authorization response on.
func (p *relyingParty) flowOf(q url.Values, a *authorizationResponse) *signInFlow {
	p.t.Helper()
	got := p.granted(q, a)
	f := &signInFlow{authorizationResponse: a, request: q}
	if code := got.Get("code"); code != "" {
		f.tokens = p.exchange(p.codeForm(code))
	} else {
		f.tokens = &tokenResponse{AccessToken: got.Get("access_token"), IDToken: got.Get("id_token")}
	}
	f.id = p.checkIDToken(q, f.tokens)
	if f.tokens.AccessToken != "" {
		f.userinfo = p.checkUserinfo(p.Get("/oauth2/userinfo", f.tokens.AccessToken), f.id)
	}
	return f
}

// checkIDToken checks an ID token as every module does (OpenID Connect Core
// §3.1.3.7, §3.2.2.11).
func (p *relyingParty) checkIDToken(q url.Values, tokens *tokenResponse) map[string]any {
	p.t.Helper()
	claims, header := p.verified(tokens.IDToken)
	if header.Algorithm != "RS256" {
		p.t.Errorf("alg %q", header.Algorithm)
	}
	number := func(name string) int64 { v, _ := claims[name].(float64); return int64(v) }
	now := time.Now().Unix()
	sub, _ := claims["sub"].(string)
	switch {
	case claims["iss"] != issuer, claims["aud"] != p.client.id, sub == "", len(sub) > 255:
		p.t.Errorf("claims %v", claims)
	case number("exp") <= now, number("iat") > now+5, number("iat") < now-60, number("auth_time") > now+5, number("auth_time") == 0:
		p.t.Errorf("times %v", claims)
	}
	if nonce, there := claims["nonce"]; q != nil && (there != q.Has("nonce") || there && nonce != q.Get("nonce")) {
		p.t.Errorf("nonce %v, sent %q", nonce, q["nonce"])
	}
	sum := sha256.Sum256([]byte(tokens.AccessToken))
	if want := base64.RawURLEncoding.EncodeToString(sum[:16]); tokens.AccessToken != "" && claims["at_hash"] != want {
		p.t.Errorf("at_hash %v", claims["at_hash"])
	}
	if q != nil {
		p.checkUnasked(q, claims)
	}
	return claims
}

// checkUnasked checks that an ID token tells about the person only what was asked
// for: by name, or by a scope where there is no userinfo (§5.4).
func (p *relyingParty) checkUnasked(q url.Values, claims map[string]any) {
	p.t.Helper()
	allowed := []string{"iss", "sub", "aud", "exp", "iat", "auth_time", "nonce", "at_hash", "sid", "amr", "acr"}
	for scope := range strings.FieldsSeq(q.Get("scope")) {
		if p.responseType == "id_token" || scope == "fhirUser" {
			allowed = append(allowed, claimsByScope[scope]...)
		}
	}
	var asked struct {
		IDToken map[string]any `json:"id_token"`
	}
	if parameter := q.Get("claims"); parameter != "" {
		if err := json.Unmarshal([]byte(parameter), &asked); err != nil {
			p.t.Fatal(err)
		}
	}
	allowed = slices.AppendSeq(allowed, maps.Keys(asked.IDToken))
	for name := range claims {
		if !slices.Contains(allowed, name) {
			p.t.Errorf("claim %s was not asked for", name)
		}
	}
}

// claimsByScope are the claims of OpenID Connect Core §5.4 and of SMART. Alice has
// all of them.
var claimsByScope = map[string][]string{
	"profile": {
		"name", "family_name", "given_name", "middle_name", "nickname", "preferred_username", "profile",
		"picture", "website", "gender", "birthdate", "zoneinfo", "locale", "updated_at",
	},
	"email":    {"email", "email_verified"},
	"phone":    {"phone_number", "phone_number_verified"},
	"address":  {"address"},
	"fhirUser": {"fhirUser"},
}

// verified returns the claims and the header of a token, after checking its signature
// with the published key of the same kid.
func (p *relyingParty) verified(token string) (map[string]any, jose.Header) {
	p.t.Helper()
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.RS256, jose.ES256})
	if err != nil {
		p.t.Fatalf("%q: %v", token, err)
	}
	keys := p.keys().Key(parsed.Headers[0].KeyID)
	if parsed.Headers[0].KeyID == "" || len(keys) != 1 {
		p.t.Fatalf("kid %q: %d keys", parsed.Headers[0].KeyID, len(keys))
	}
	claims := map[string]any{}
	if err := parsed.Claims(keys[0].Public().Key, &claims); err != nil {
		p.t.Fatal(err)
	}
	return claims, parsed.Headers[0]
}

func (p *relyingParty) keys() *jose.JSONWebKeySet {
	p.t.Helper()
	set := new(jose.JSONWebKeySet)
	p.readJSON(p.Get("/.well-known/jwks.json", ""), set)
	return set
}

// readJSON decodes a response that must be 200 and JSON.
func (p *relyingParty) readJSON(r *http.Response, to any) {
	p.t.Helper()
	body := gatewaytest.Read(p.t, r)
	if kind := r.Header.Get("Content-Type"); r.StatusCode != http.StatusOK || !strings.HasPrefix(kind, "application/json") {
		p.t.Fatalf("status %d, Content-Type %q: %s", r.StatusCode, kind, body)
	}
	if err := json.Unmarshal([]byte(body), to); err != nil {
		p.t.Fatalf("%v: %s", err, body)
	}
}

// checkUserinfo checks a userinfo response (OpenID Connect Core §5.1, §5.3).
func (p *relyingParty) checkUserinfo(r *http.Response, id map[string]any) map[string]any {
	p.t.Helper()
	claims := map[string]any{}
	p.readJSON(r, &claims)
	if claims["sub"] != id["sub"] {
		p.t.Errorf("sub %v in userinfo, %v in the ID token", claims["sub"], id["sub"])
	}
	checkStandardClaims(p.t, claims)
	return claims
}

var claimBirthdate = regexp.MustCompile(`^\d{4}(-\d{2}-\d{2})?$`)

// checkStandardClaims compares claims with the types of OpenID Connect Core §5.1.
func checkStandardClaims(t testing.TB, claims map[string]any) {
	t.Helper()
	for name, value := range claims {
		var ok bool
		switch name {
		case "email_verified", "phone_number_verified":
			_, ok = value.(bool)
		case "updated_at", "exp", "iat", "auth_time":
			seconds, number := value.(float64)
			ok = number && seconds > 0 && seconds < 1e11
		case "address":
			_, ok = value.(map[string]any)
		case "amr":
			_, ok = value.([]any)
		case "birthdate":
			text, _ := value.(string)
			ok = claimBirthdate.MatchString(text)
		default:
			text, _ := value.(string)
			ok = text != ""
		}
		if !ok {
			t.Errorf("claim %s: %v", name, value)
		}
	}
}
