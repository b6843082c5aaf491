package relyingparty_test

import (
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

// TestCheckRefreshTokens checks that a provider is reported which declares to issue no refresh tokens, if it is to be asked later.
func TestCheckRefreshTokens(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		grantTypes []string
		offline    bool
		fails      bool
	}{
		"not declared":    {nil, true, false},
		"issued":          {[]string{"authorization_code", "refresh_token"}, true, false},
		"not issued":      {[]string{"authorization_code"}, true, true},
		"not to be asked": {[]string{"authorization_code"}, false, false},
	} {
		idp := providertest.New(issuer)
		if tt.grantTypes != nil {
			idp.Change(func(s *providertest.Settings) { s.Metadata["grant_types_supported"] = tt.grantTypes })
		}
		p := newProvider(t, idp, func(c *relyingparty.Config) { c.Transport, c.Offline = inMemory{idp}, tt.offline })
		if err := p.Check(t.Context()); (err != nil) != tt.fails {
			t.Errorf("%s: %v", name, err)
		}
	}
}
