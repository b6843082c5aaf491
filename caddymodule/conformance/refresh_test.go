package conformance

import (
	"net/url"
	"regexp"
	"slices"
	"time"
)

func moduleRefreshToken(p *relyingParty) {
	refreshTwo(p, p.second())
}

// refreshTwo refreshes as two clients; the first also tries the token of the second.
func refreshTwo(first, second *relyingParty) {
	first.refreshed(true)
	token := second.refreshed(false)
	first.refusedToken(formOfRefresh(token, ""), badRequest, "invalid_grant")
	second.exchange(formOfRefresh(token, "")) // that changed nothing
}

// visibleText is what a refresh token may be made of (RFC 6749 §A.17).
var visibleText = regexp.MustCompile(`^[\x20-\x7e]+$`)

// refreshed signs in, refreshes, and compares the two token responses (OpenID Connect
// Core §12.2). It returns the newest refresh token.
func (p *relyingParty) refreshed(withScope bool) string {
	p.t.Helper()
	scope := "openid offline_access"
	first := p.flow(url.Values{"scope": {scope}, "prompt": {"consent"}})
	if first.consents != 1 || !visibleText.MatchString(first.tokens.Refresh) {
		p.t.Fatalf("asked for consent %d times, refresh token %q", first.consents, first.tokens.Refresh)
	}
	if grants := p.discovery()["grant_types_supported"].([]any); !slices.Contains(grants, "refresh_token") {
		p.t.Errorf("grant_types_supported %v", grants)
	}
	asked := ""
	if withScope {
		asked = scope
	}
	time.Sleep(time.Second) // in a bubble, so that iat differs
	tokens := p.exchange(formOfRefresh(first.tokens.Refresh, asked))
	if tokens.AccessToken == first.tokens.AccessToken || tokens.Refresh == "" {
		p.t.Error("the same access token, or no refresh token")
	}
	id := p.checkIDToken(nil, tokens)
	for _, name := range []string{"iss", "sub", "aud", "auth_time"} {
		if id[name] != first.id[name] {
			p.t.Errorf("%s: %v, was %v", name, id[name], first.id[name])
		}
	}
	if id["nonce"] != nil || id["iat"].(float64) <= first.id["iat"].(float64) {
		p.t.Errorf("claims %v", id)
	}
	p.checkUserinfo(p.Get("/oauth2/userinfo", tokens.AccessToken), id)
	return tokens.Refresh
}
