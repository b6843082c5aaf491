package conformance

import (
	"net/url"
	"regexp"
	"time"
)

const offlineScope = "openid offline_access"

// moduleRefreshToken refreshes as two clients; then the first tries the token of the second, with
// the scope, as the suite's RefreshTokenRequestExpectingErrorSteps do.
func moduleRefreshToken(p *relyingParty) {
	first, second := p, p.as(secondClient)
	if p.registers {
		refreshes := map[string]any{"grant_types": []string{"authorization_code", "refresh_token"}}
		first, second = p.registered(registeredAddress, refreshes), p.registered(secondClient.redirectURI, refreshes)
	}
	first.refreshed(offlineScope, nil)
	token := second.refreshed("", nil)
	first.refusedToken(formOfRefresh(token, offlineScope), badRequest, "invalid_grant")
	second.exchange(formOfRefresh(token, "")) // that changed nothing
}

// visibleText is what tokens may be made of (RFC 6749 §A.12, §A.17).
var visibleText = regexp.MustCompile(`^[\x20-\x7e]+$`)

// refreshed signs in, refreshes, and compares the two token responses (OpenID Connect
// Core §12.2), as the suite's RefreshTokenRequestSteps do. It returns the newest refresh token.
func (p *relyingParty) refreshed(scope string, meanwhile func()) string {
	p.t.Helper()
	first := p.flow(url.Values{"scope": {offlineScope}, "prompt": {"consent"}})
	if first.consents != 1 || !visibleText.MatchString(first.tokens.Refresh) {
		p.t.Fatalf("asked for consent %d times, refresh token %q", first.consents, first.tokens.Refresh)
	}
	if !p.discovers("grant_types_supported", "refresh_token") {
		p.t.Error("discovery does not offer it")
	}
	if meanwhile != nil {
		meanwhile()
	}
	time.Sleep(time.Second) // in a bubble, so that iat differs
	tokens := p.exchange(formOfRefresh(first.tokens.Refresh, scope))
	if tokens.AccessToken == first.tokens.AccessToken {
		p.t.Error("the same access token")
	}
	for _, token := range []string{tokens.AccessToken, tokens.Refresh} {
		if !visibleText.MatchString(token) || bitsOf(token) < 128 {
			p.t.Errorf("token %q: %.0f bits", token, bitsOf(token))
		}
	}
	id := p.checkIDToken(nil, tokens)
	for _, name := range []string{"iss", "sub", "aud", "azp", "auth_time"} {
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
