package relyingparty_test

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

func discardToken(string) {}

// A refresh returns the person's current claims and the next refresh token.
func TestRefresh(t *testing.T) {
	t.Parallel()
	idp := providertest.Start(t)
	p := newProvider(t, idp, nil)
	before := mustSignIn(t, p, idp)
	idp.Change(func(s *providertest.Settings) {
		s.People = []providertest.Person{{Subject: before.Subject, Claims: map[string]any{"email": "new@hospital.example"}}}
		s.UserInfoResponse = func(claims map[string]any) { claims["name"] = "by userinfo" }
	})
	now, err := p.Refresh(t.Context(), before.RefreshToken, before.Subject, discardToken)
	if err != nil || now.Claims["email"] != "new@hospital.example" || now.Claims["name"] != "by userinfo" || now.RefreshToken == "" || now.RefreshToken == before.RefreshToken {
		t.Errorf("%+v, %v", now, err)
	}
	if _, err = p.Refresh(t.Context(), before.RefreshToken, before.Subject, discardToken); !relyingparty.IsDenial(err) {
		t.Errorf("used twice: %v", err)
	}
}

// An error after the token response does not indicate whether the person still has access. The next refresh token is stored
// anyway.
func TestRefreshFailsAfterTokenResponse(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*providertest.Settings)
		cause  error
	}{
		"an unknown key": {func(s *providertest.Settings) { s.IDToken = providertest.UnknownKey }, relyingparty.ErrIDToken},
		"userinfo of another": {func(s *providertest.Settings) {
			s.UserInfoResponse = func(claims map[string]any) { claims["sub"] = "another" }
		}, relyingparty.ErrUserInfo},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			idp := providertest.Start(t)
			p := newProvider(t, idp, nil)
			before := mustSignIn(t, p, idp)
			idp.Change(tt.change)
			next := ""
			_, err := p.Refresh(t.Context(), before.RefreshToken, before.Subject, func(rotated string) { next = rotated })
			if !errors.Is(err, tt.cause) || relyingparty.IsDenial(err) {
				t.Errorf("error %v", err)
			}
			if next == "" || next == before.RefreshToken {
				t.Errorf("next %q", next)
			}
		})
	}
}

// The iss, sub and aud of a refreshed ID token must be those of the sign-in (OpenID Connect Core §12.2). A token with other
// values, signed by the provider, is an immediate denial. Defects that do not concern the person are treated as an outage.
// Nonce and auth_time are not compared, because the provider need not repeat them.
func TestRefreshedIDToken(t *testing.T) {
	t.Parallel()
	set := func(changes map[string]any, after ...func(*providertest.IDToken)) func(*providertest.IDToken) {
		return func(token *providertest.IDToken) {
			for name, value := range changes {
				if token.Claims[name] = value; value == nil {
					delete(token.Claims, name)
				}
			}
			for _, change := range after {
				change(token)
			}
		}
	}
	ours := providertest.ClientID
	another := map[string]any{"sub": "another"}
	const yes, outage, denied = "yes", "outage", "denied"
	for name, tt := range map[string]struct {
		change func(*providertest.IDToken)
		want   string
	}{
		"as before":                        {set(nil), yes},
		"without a nonce":                  {set(map[string]any{"nonce": nil}), yes},
		"another nonce":                    {set(map[string]any{"nonce": "another"}), yes},
		"a later auth_time":                {set(map[string]any{"auth_time": time.Now().Add(time.Minute).Unix()}), yes},
		"without auth_time":                {set(map[string]any{"auth_time": nil}), yes},
		"azp ours":                         {set(map[string]any{"azp": ours}), yes},
		"several audiences, azp ours":      {set(map[string]any{"aud": []string{ours, "another"}, "azp": ours}), yes},
		"another sub":                      {set(another), denied},
		"a longer sub":                     {set(map[string]any{"sub": providertest.Alice.Subject + " "}), denied},
		"another iss":                      {set(nil, providertest.WrongIssuer), denied},
		"another aud":                      {set(nil, providertest.WrongAudience), denied},
		"several audiences, azp another":   {set(nil, providertest.OtherAuthorizedParty), denied},
		"another sub, and expired":         {set(another, providertest.ExpiredToken), denied},
		"another sub, and at_hash":         {set(map[string]any{"sub": "another", "at_hash": "x"}), denied},
		"another sub, and several aud":     {set(map[string]any{"sub": "another", "aud": []string{ours, "another"}}), denied},
		"another sub by an unknown key":    {set(another, providertest.UnknownKey), outage},
		"another sub by a foreign key":     {set(another, providertest.ForeignKey), outage},
		"another sub, unsigned":            {set(another, providertest.AlgorithmNone), outage},
		"another sub by the secret":        {set(another, providertest.HS256WithClientSecret), outage},
		"another sub by another alg":       {set(another, func(token *providertest.IDToken) { token.Algorithm = "PS256" }), outage},
		"expired":                          {set(nil, providertest.ExpiredToken), outage},
		"another access token's at_hash":   {set(map[string]any{"at_hash": "x"}), outage},
		"no sub":                           {set(map[string]any{"sub": nil}), outage},
		"no iss":                           {set(map[string]any{"iss": nil}), outage},
		"no aud":                           {set(map[string]any{"aud": nil}), outage},
		"no iat":                           {set(map[string]any{"iat": nil}), outage},
		"sub a number":                     {set(map[string]any{"sub": 7}), outage},
		"several audiences without an azp": {set(map[string]any{"aud": []string{ours, "another"}}), outage},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			idp := providertest.Start(t, func(s *providertest.Settings) { s.KeyAlgorithm = "" })
			p := newProvider(t, idp, nil)
			before := mustSignIn(t, p, idp)
			idp.Change(func(s *providertest.Settings) { s.IDToken = tt.change })
			next := ""
			now, err := p.Refresh(t.Context(), before.RefreshToken, before.Subject, func(rotated string) { next = rotated })
			got := map[bool]string{true: denied, false: outage}[relyingparty.IsDenial(err)]
			if err == nil {
				got = yes
			}
			if got != tt.want || (err == nil) != (now != nil) || next == "" {
				t.Errorf("%s, want %s: %+v, %v, next %q", got, tt.want, now, err, next)
			}
		})
	}
}

// A new ID token is optional. If there is none, the refresh succeeds without new claims.
func TestRefreshWithoutIDToken(t *testing.T) {
	t.Parallel()
	idp := providertest.Start(t)
	p := newProvider(t, idp, nil)
	before := mustSignIn(t, p, idp)
	idp.Change(func(s *providertest.Settings) {
		s.TokenResponse = func(answer map[string]any) { delete(answer, "id_token"); delete(answer, "refresh_token") }
	})
	now, err := p.Refresh(t.Context(), before.RefreshToken, before.Subject, discardToken)
	if err != nil || now.Claims != nil || now.RefreshToken != before.RefreshToken {
		t.Errorf("%+v, %v", now, err)
	}
}

// Only errors that concern the person are denials. All other errors are treated as outages.
func TestDenied(t *testing.T) {
	t.Parallel()
	idp := providertest.Start(t)
	p := newProvider(t, idp, nil)
	for name, tt := range map[string]struct {
		fault  providertest.Fault
		denied bool
	}{
		"invalid_grant":        {providertest.ErrorResponse(400, "invalid_grant"), true},
		"invalid_grant, 403":   {providertest.ErrorResponse(403, "invalid_grant"), true},
		"interaction_required": {providertest.ErrorResponse(400, "interaction_required"), true},
		"login_required":       {providertest.ErrorResponse(401, "login_required"), true},
		"consent_required":     {providertest.ErrorResponse(400, "consent_required"), true},
		"access_denied":        {providertest.ErrorResponse(401, "access_denied"), true},
		"too many requests":    {providertest.ErrorResponse(429, "access_denied"), false},
		"invalid_client":       {providertest.ErrorResponse(401, "invalid_client"), false},
		"unauthorized_client":  {providertest.ErrorResponse(400, "unauthorized_client"), false},
		"a failing provider":   {providertest.ErrorResponse(500, "invalid_grant"), false},
		"a proxy":              {providertest.Status(502), false},
		"no token response":    {providertest.JSON(200, map[string]string{"error": "invalid_grant"}), false},
		"no JSON":              {providertest.SendHTML, false},
		"a redirect":           {providertest.Redirect("https://elsewhere.example/"), false},
		"no answer":            {providertest.AbortHandler, false},
	} {
		idp.SetFault(providertest.Token, tt.fault)
		if _, err := p.Refresh(t.Context(), "a-refresh-token", "s", discardToken); err == nil || relyingparty.IsDenial(err) != tt.denied || strings.Contains(err.Error(), "a-refresh-token") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A refresh token that outlives the session is requested once if the provider supports it and the configuration requests it.
func TestOfflineAccess(t *testing.T) {
	t.Parallel()
	offline := func(c *relyingparty.Config) { c.RequestOfflineAccess = true }
	for name, tt := range map[string]struct {
		listed        bool
		change        func(*relyingparty.Config)
		scope, google string
	}{
		"listed":           {true, offline, "openid profile email offline_access", ""},
		"configured, too":  {true, func(c *relyingparty.Config) { c.RequestOfflineAccess, c.Scopes = true, []string{"offline_access"} }, "openid offline_access", ""},
		"not listed":       {false, offline, "openid profile email", ""},
		"not wanted":       {true, nil, "openid profile email", ""},
		"Google":           {false, func(c *relyingparty.Config) { c.RequestOfflineAccess, c.IsGoogle = true, true }, "openid profile email", "offline"},
		"Google, unwanted": {false, func(c *relyingparty.Config) { c.IsGoogle = true }, "openid profile email", ""},
	} {
		idp := providertest.Start(t, func(s *providertest.Settings) {
			if tt.listed {
				s.Metadata["scopes_supported"] = []string{"openid", "offline_access"}
			}
		})
		address, err := newProvider(t, idp, tt.change).AuthenticationURL(t.Context(), newRequest())
		u, _ := url.Parse(address)
		if err != nil || u.Query().Get("scope") != tt.scope || u.Query().Get("access_type") != tt.google {
			t.Errorf("%s: %s, %v", name, address, err)
		}
	}
}

func TestRevoke(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*providertest.Settings){
		"by header": func(*providertest.Settings) {},
		"by form": func(s *providertest.Settings) {
			s.Metadata["token_endpoint_auth_methods_supported"] = []string{"client_secret_post"}
		},
	} {
		idp := providertest.Start(t, change)
		p := newProvider(t, idp, nil)
		id, err := signIn(t, p, idp, newRequest())
		if err == nil {
			err = p.Revoke(t.Context(), id.RefreshToken)
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err = p.Refresh(t.Context(), id.RefreshToken, id.Subject, discardToken); !relyingparty.IsDenial(err) {
			t.Errorf("%s: still good: %v", name, err)
		}
		idp.SetFault(providertest.Revocation, providertest.Status(http.StatusServiceUnavailable))
		if err = p.Revoke(t.Context(), id.RefreshToken); !errors.Is(err, relyingparty.ErrStatus) {
			t.Errorf("%s: %v", name, err)
		}
	}
	idp := providertest.Start(t, func(s *providertest.Settings) { s.Metadata["revocation_endpoint"] = nil })
	if err := newProvider(t, idp, nil).Revoke(t.Context(), "token"); err != nil || count(idp, providertest.Revocation) > 0 {
		t.Errorf("without an endpoint: %v", err)
	}
}

// TestCheckRefreshTokens checks that revalidation requires a provider that supports refresh tokens.
func TestCheckRefreshTokens(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		grantTypes []string
		offline    bool
		fails      bool
	}{
		"not declared":              {nil, true, false},
		"issued":                    {[]string{"authorization_code", "refresh_token"}, true, false},
		"not issued":                {[]string{"authorization_code"}, true, true},
		"not issued, not requested": {[]string{"authorization_code"}, false, false},
	} {
		idp := providertest.New(issuer)
		if tt.grantTypes != nil {
			idp.Change(func(s *providertest.Settings) { s.Metadata["grant_types_supported"] = tt.grantTypes })
		}
		p := newProvider(t, idp, func(c *relyingparty.Config) { c.Transport, c.RequestOfflineAccess = handlerTransport{idp}, tt.offline })
		if err := p.Check(t.Context()); (err != nil) != tt.fails {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCheckNamesMistakes checks that Check reports common mistakes and what to do.
func TestCheckNamesMistakes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		member string
		value  any
		want   string
	}{
		"only private_key_jwt": {"token_endpoint_auth_methods_supported", []string{"private_key_jwt"}, "allow a client secret"},
		"several tenants":      {"issuer", "https://login.example/{tenantid}/v2.0", "list the tenants in tenants"},
	} {
		idp := providertest.New(issuer)
		idp.Change(func(s *providertest.Settings) { s.Metadata[tt.member] = tt.value })
		p := newProvider(t, idp, func(c *relyingparty.Config) { c.Transport = handlerTransport{idp} })
		if err := p.Check(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// newIntrospectingProvider starts a provider that issues no refresh tokens but supports introspection.
func newIntrospectingProvider(t *testing.T) *providertest.Provider {
	t.Helper()
	idp := providertest.Start(t)
	idp.Change(func(s *providertest.Settings) {
		s.Metadata["introspection_endpoint"] = idp.Issuer + string(providertest.Introspection)
		s.TokenResponse = func(answer map[string]any) { delete(answer, "refresh_token") }
	})
	return idp
}

// An access token is stored only if there is no refresh token and introspection reports the access token as active. Its expiry
// is always stored; if the response does not contain it, it is that of the ID token.
func TestAccessTokenIsKept(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change     func(*providertest.Settings)
		fault      providertest.Fault
		off        bool
		wantStored bool
	}{
		"active": {wantStored: true},
		"by form": {change: func(s *providertest.Settings) {
			s.Metadata["token_endpoint_auth_methods_supported"] = []string{"client_secret_post"}
		}, wantStored: true},
		"not wanted":       {off: true},
		"no endpoint":      {change: func(s *providertest.Settings) { delete(s.Metadata, "introspection_endpoint") }},
		"a refresh token":  {change: func(s *providertest.Settings) { s.TokenResponse = nil }},
		"exp alone":        {change: withoutExpiry, wantStored: true},
		"no expiry at all": {change: withoutExpiry, fault: providertest.JSON(http.StatusOK, map[string]any{"active": true})},
		"not our affair":   {fault: providertest.JSON(http.StatusOK, map[string]any{"active": false})},
		"not for us":       {fault: providertest.Status(http.StatusForbidden)},
		"another answer":   {fault: providertest.JSON(http.StatusOK, map[string]any{})},
	} {
		idp := newIntrospectingProvider(t)
		if tt.change != nil {
			idp.Change(tt.change)
		}
		idp.SetFault(providertest.Introspection, tt.fault)
		p := newProvider(t, idp, func(c *relyingparty.Config) { c.RequestOfflineAccess = !tt.off })
		id, err := signIn(t, p, idp, newRequest())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if stored := id.AccessToken != ""; stored != tt.wantStored {
			t.Errorf("%s: stored %t", name, stored)
		}
		if expires := !tt.off && id.RefreshToken == ""; expires == id.AccessTokenExpiry.IsZero() || expires && time.Until(id.AccessTokenExpiry).Round(time.Minute) != time.Hour {
			t.Errorf("%s: expires %v", name, id.AccessTokenExpiry)
		}
	}
}

// withoutExpiry removes the refresh token and expires_in from token responses.
func withoutExpiry(s *providertest.Settings) {
	s.TokenResponse = func(answer map[string]any) { delete(answer, "refresh_token"); delete(answer, "expires_in") }
}

func TestIntrospect(t *testing.T) {
	t.Parallel()
	idp := newIntrospectingProvider(t)
	p := newProvider(t, idp, func(c *relyingparty.Config) { c.RequestOfflineAccess = true })
	id := mustSignIn(t, p, idp)
	if active, _, err := p.Introspect(t.Context(), id.AccessToken); err != nil || !active {
		t.Errorf("%t, %v", active, err)
	}
	idp.Change(func(s *providertest.Settings) { s.People = []providertest.Person{{Subject: "another"}} })
	if active, _, err := p.Introspect(t.Context(), id.AccessToken); err != nil || active {
		t.Errorf("who is gone: %t, %v", active, err)
	}
	idp.SetFault(providertest.Introspection, providertest.Status(http.StatusUnauthorized))
	if _, _, err := p.Introspect(t.Context(), id.AccessToken); !errors.Is(err, relyingparty.ErrStatus) {
		t.Errorf("refused: %v", err)
	}
}
