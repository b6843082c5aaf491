package registration_test

import (
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/registration"
)

// A registered app can sign a user in, obtain consent, and get tokens with the secret from the registration response (RFC 7591
// §3.2.1).
func TestRegisteredClient(t *testing.T) {
	t.Parallel()
	storage := new(clientStorage)
	b := authorizetest.NewBrowser(t, authorizetest.New(t, registering(storage)))
	r, c := register(b, clientMetadata(nil), initialAccessToken)
	if r.StatusCode != http.StatusCreated || !strings.HasPrefix(c.ID, "registered-") || len(c.Secret) != 43 || c.Expires == nil || *c.Expires != 0 ||
		time.Since(time.Unix(c.IssuedAt, 0)) > time.Minute || c.Scope != "openid email phone profile user/*.rs" || r.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%d %+v", r.StatusCode, c)
	}
	for key, file := range storage.Files {
		if strings.Contains(string(file), c.Secret) || strings.Contains(string(file), c.AccessToken) {
			t.Errorf("%s holds a secret: %s", key, file)
		}
	}
	q := authorizetest.Request(authorizetest.PKCE())
	q.Set("client_id", c.ID)
	q.Set("scope", "openid user/*.rs")
	page, _ := b.OpenForm(b.SignIn(q, "alice", "right"))
	if !strings.Contains(page, "Give Newcomer access?") || !strings.Contains(page, "registered itself") {
		t.Errorf("page %s", page)
	}
	code := authorizetest.Location(t, b.Post("/oauth2/consent", authorizetest.UnchangedConsentForm(page))).Query().Get("code")
	exchange := authorizetest.CodeForm(code, url.Values{"client_id": {c.ID}, "client_secret": {"wrong"}, "code_verifier": {authorizetest.Verifier}})
	if got := b.RequestTokens(exchange); got.Error != "invalid_client" {
		t.Errorf("with a wrong secret: %+v", got)
	}
	exchange.Del("client_secret")
	if got := b.RequestTokens(exchange); got.Error != "invalid_client" {
		t.Errorf("without a secret: %+v", got)
	}
	exchange.Set("client_secret", c.Secret)
	answer := b.RequestTokens(exchange)
	if answer.Scope != "openid user/*.rs" {
		t.Fatalf("%+v", answer)
	}
	if r := manageClient(b, http.MethodDelete, c.URI, c.AccessToken); r.StatusCode != http.StatusNoContent {
		t.Errorf("DELETE: %d", r.StatusCode)
	}
	if r := b.Userinfo(answer.AccessToken); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("its token still works: %d", r.StatusCode)
	}
	if r := b.Authorize(q); r.StatusCode != http.StatusBadRequest {
		t.Errorf("it is still known: %d", r.StatusCode)
	}
}

func TestRegisteredPublicClient(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, registering(new(clientStorage))))
	_, c := register(b, clientMetadata(map[string]any{"token_endpoint_auth_method": "none", "scope": nil}), initialAccessToken)
	if c.ID == "" || c.Secret != "" || c.Expires != nil || c.Scope != "openid email phone profile user/*.rs demo.read" {
		t.Errorf("%+v", c)
	}
	q := authorizetest.Request(url.Values{"client_id": {c.ID}})
	if u := authorizetest.Location(t, b.Authorize(q)); u.Query().Get("error") != "invalid_request" {
		t.Errorf("without PKCE: %s", u)
	}
}

func TestRegistrationRefused(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change map[string]any
		want   string
	}{
		{"no redirect URI", map[string]any{"redirect_uris": nil}, "invalid_redirect_uri"},
		{"redirect URIs in another case", map[string]any{"REDIRECT_URIS": []string{authorizetest.Callback}}, "invalid_client_metadata"},
		{"a redirect URI over http", map[string]any{"redirect_uris": []string{"http://evil.example/"}}, "invalid_redirect_uri"},
		{"a redirect URI of a script", map[string]any{"redirect_uris": []string{authorizetest.Callback, "javascript:alert(1)"}}, "invalid_redirect_uri"},
		{"our own address", map[string]any{"redirect_uris": []string{authorizetest.Issuer + "/oauth2/sandbox_app"}}, "invalid_redirect_uri"},
		{"our own address, written otherwise", map[string]any{"redirect_uris": []string{"https://FHIR.example.org.:443/x"}}, "invalid_redirect_uri"},
		{"our own address to sign out to", map[string]any{"post_logout_redirect_uris": []string{authorizetest.Issuer + "/"}}, "invalid_redirect_uri"},
		{"21 redirect URIs", map[string]any{"redirect_uris": strings.Split(strings.Repeat(authorizetest.Callback+" ", 20)+authorizetest.Callback, " ")}, "invalid_redirect_uri"},
		{"an address after signing out over http", map[string]any{"post_logout_redirect_uris": []string{"http://evil.example/"}}, "invalid_redirect_uri"},
		{"a scope beyond the list", map[string]any{"scope": "openid user/*.cruds"}, "invalid_client_metadata"},
		{"a system scope", map[string]any{"scope": "system/*.rs"}, "invalid_client_metadata"},
		{"the token flow", map[string]any{"response_types": []string{"token"}}, "invalid_client_metadata"},
		{"client_credentials", map[string]any{"grant_types": []string{"client_credentials"}}, "invalid_client_metadata"},
		{"client_credentials too", map[string]any{"grant_types": []string{"authorization_code", "client_credentials"}}, "invalid_client_metadata"},
		{"another way to authenticate", map[string]any{"token_endpoint_auth_method": "tls_client_auth"}, "invalid_client_metadata"},
		{"pairwise subjects", map[string]any{"subject_type": "pairwise"}, "invalid_client_metadata"},
		{"unsigned ID tokens", map[string]any{"id_token_signed_response_alg": "none"}, "invalid_client_metadata"},
		{"userinfo by HS256", map[string]any{"userinfo_signed_response_alg": "HS256"}, "invalid_client_metadata"},
		{"userinfo by an algorithm without a key here", map[string]any{"userinfo_signed_response_alg": "ES384"}, "invalid_client_metadata"},
		{"unsigned userinfo by name", map[string]any{"userinfo_signed_response_alg": "none"}, "invalid_client_metadata"},
		{"a logo over http", map[string]any{"logo_uri": "http://app.example.org/logo.png"}, "invalid_client_metadata"},
		{"a policy that is a script", map[string]any{"policy_uri": "javascript:alert(1)"}, "invalid_client_metadata"},
		{"terms that are data", map[string]any{"tos_uri": "data:text/html,x"}, "invalid_client_metadata"},
		{"a back channel over http", map[string]any{"backchannel_logout_uri": "http://localhost/"}, "invalid_client_metadata"},
		{"a name over two lines", map[string]any{"client_name": "Good\nBank"}, "invalid_client_metadata"},
		{"a name that turns the page around", map[string]any{"client_name": "Good\u202eknaB"}, "invalid_client_metadata"},
		{"a blank name", map[string]any{"client_name": "  "}, "invalid_client_metadata"},
		{"a long name", map[string]any{"client_name": strings.Repeat("x", 101)}, "invalid_client_metadata"},
		{"client_name that is no string", map[string]any{"client_name": 7}, "invalid_client_metadata"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			storage := new(clientStorage)
			r, c := register(authorizetest.NewBrowser(t, authorizetest.New(t, registering(storage))), clientMetadata(tt.change), initialAccessToken)
			if r.StatusCode != http.StatusBadRequest || c.Error != tt.want || len(storage.Files) != 0 {
				t.Errorf("%d %+v", r.StatusCode, c)
			}
		})
	}
}

func TestLargeRegistration(t *testing.T) {
	t.Parallel()
	large := map[string]any{"client_uri": strings.Repeat("x", 64<<10)}
	r, c := register(authorizetest.NewBrowser(t, authorizetest.New(t, registering(new(clientStorage)))), clientMetadata(large), initialAccessToken)
	if r.StatusCode != http.StatusRequestEntityTooLarge || c.Error != "invalid_request" {
		t.Errorf("%d %+v", r.StatusCode, c)
	}
}

func TestRegistrationNeedsToken(t *testing.T) {
	t.Parallel()
	storage := new(clientStorage)
	b := authorizetest.NewBrowser(t, authorizetest.New(t, registering(storage)))
	for _, token := range []string{"", "wrong", initialAccessToken + "x"} {
		r, c := register(b, clientMetadata(nil), token)
		if r.StatusCode != http.StatusUnauthorized || c.Error != "invalid_token" || !strings.HasPrefix(r.Header.Get("WWW-Authenticate"), "Bearer ") {
			t.Errorf("%q: %d %+v", token, r.StatusCode, c)
		}
		if hasError := strings.Contains(r.Header.Get("WWW-Authenticate"), "error="); hasError != (token != "") {
			t.Errorf("%q: %s", token, r.Header.Get("WWW-Authenticate"))
		}
	}
	if len(storage.Files) != 0 {
		t.Errorf("stored %v", storage.Files)
	}
}

// A client can read, change and delete only its own registration (RFC 7592). It needs its registration access token, which the
// responses repeat (RFC 7592 §3).
func TestRegistrationIsManaged(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, registering(new(clientStorage))))
	_, c := register(b, clientMetadata(nil), initialAccessToken)
	_, other := register(b, clientMetadata(nil), initialAccessToken)
	r := manageClient(b, http.MethodGet, c.URI, c.AccessToken)
	if got := authorizetest.Decode[registrationResponse](t, r); got.ID != c.ID || got.Secret != "" || got.AccessToken != c.AccessToken || got.Redirects[0] != authorizetest.Callback {
		t.Errorf("%d %+v", r.StatusCode, got)
	}
	for name, tt := range map[string][2]string{
		"another's token":     {c.URI, other.AccessToken},
		"the initial token":   {c.URI, initialAccessToken},
		"the secret":          {c.URI, c.Secret},
		"no token":            {c.URI, ""},
		"nonexistent client":  {authorizetest.Issuer + "/oauth2/register?client_id=registered-" + strings.Repeat("0", 32), c.AccessToken},
		"a configured client": {authorizetest.Issuer + "/oauth2/register?client_id=app", c.AccessToken},
		"a file elsewhere":    {authorizetest.Issuer + "/oauth2/register?client_id=../keys", c.AccessToken},
		"no client":           {authorizetest.Issuer + "/oauth2/register", c.AccessToken},
	} {
		for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete} {
			if r := manageClient(b, method, tt[0], tt[1]); r.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s %s: %d", method, name, r.StatusCode)
			}
		}
	}
}

// A malformed client_id cannot be used to read other files in the storage.
func TestOnlyRegisteredClientsAreLookedUp(t *testing.T) {
	t.Parallel()
	storage := new(clientStorage)
	b := authorizetest.NewBrowser(t, authorizetest.New(t, registering(storage)))
	for _, id := range []string{"nobody", "../keys", "registered-", "registered-/../../keys", "registered-" + strings.Repeat("A", 32), "registered-" + strings.Repeat("0", 32) + "\n"} {
		b.Authorize(authorizetest.Request(url.Values{"client_id": {id}}))
		b.Post("/oauth2/token", authorizetest.CodeForm("x", url.Values{"client_id": {id}}))
		manageClient(b, http.MethodGet, authorizetest.Issuer+"/oauth2/register?client_id="+url.QueryEscape(id), "x")
	}
	if len(storage.Loaded) != 0 {
		t.Errorf("looked up %q", storage.Loaded)
	}
}

func TestRegistrationIsBounded(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, registering(new(clientStorage))))
	for range 3 {
		if r, c := register(b, clientMetadata(nil), initialAccessToken); r.StatusCode != http.StatusCreated {
			t.Fatalf("%d %+v", r.StatusCode, c)
		}
	}
	if r, c := register(b, clientMetadata(nil), initialAccessToken); r.StatusCode != http.StatusServiceUnavailable || c.Error != "temporarily_unavailable" {
		t.Errorf("%d %+v", r.StatusCode, c)
	}
}

// Gateways with the same storage share clients. A deletion takes effect at the other gateways within a minute. A scope that is
// removed from the configuration is no longer granted.
func TestRegistrationIsShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		storage := new(clientStorage)
		here, there := authorizetest.NewBrowser(t, authorizetest.New(t, registering(storage))), authorizetest.NewBrowser(t, authorizetest.New(t, registering(storage)))
		_, c := register(here, clientMetadata(nil), initialAccessToken)
		q := authorizetest.Request(authorizetest.PKCE())
		q.Set("client_id", c.ID)
		q.Set("scope", "user/*.rs")
		if u := authorizetest.Location(t, there.Authorize(q)); u.Path != "/oauth2/login" {
			t.Errorf("at another gateway: %s", u)
		}
		narrowed := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) {
			registering(storage)(c)
			optionsOf(c).Scopes = []string{"demo.read"}
		}))
		if u := authorizetest.Location(t, narrowed.Authorize(q)); u.Query().Get("error") != "invalid_scope" {
			t.Errorf("after the list was narrowed: %s", u)
		}
		manageClient(here, http.MethodDelete, c.URI, c.AccessToken)
		time.Sleep(time.Minute + time.Second)
		if r := there.Authorize(q); r.StatusCode != http.StatusBadRequest {
			t.Errorf("after it was deleted: %d", r.StatusCode)
		}
	})
}

func TestRegistrationIsOffByDefault(t *testing.T) {
	t.Parallel()
	server := authorizetest.New(t, nil)
	if m := authorizetest.Decode[map[string]any](t, authorizetest.NewBrowser(t, server).Get("/.well-known/openid-configuration")); server.Serves("/oauth2/register") || m["registration_endpoint"] != nil {
		t.Error("anybody can register")
	}
	b := authorizetest.NewBrowser(t, authorizetest.New(t, registering(new(clientStorage))))
	for _, path := range []string{"/.well-known/openid-configuration", "/fhir/R4/.well-known/smart-configuration"} {
		if m := authorizetest.Decode[map[string]any](t, b.Get(path)); m["registration_endpoint"] != authorizetest.Issuer+"/oauth2/register" {
			t.Errorf("%s: %v", path, m["registration_endpoint"])
		}
	}
}

func TestRegistrationConfig(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*registration.Registration){
		"without a token":   func(r *registration.Registration) { r.InitialAccessToken = "" },
		"without a storage": func(r *registration.Registration) { r.Storage = nil },
		"with no scope":     func(r *registration.Registration) { r.Scopes = []string{"a b"} },
		"a system scope":    func(r *registration.Registration) { r.Scopes = []string{"system/*.rs"} },
	} {
		c := authorizetest.Config()
		registering(new(clientStorage))(&c)
		change(optionsOf(&c))
		if _, err := authorize.New(c); err == nil || !strings.Contains(err.Error(), "registration") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An update replaces the entire registration (RFC 7592 §2.2). Its response is like the response to a registration (RFC 7592
// §3). The secret stays the same.
func TestRegistrationIsChanged(t *testing.T) {
	t.Parallel()
	var trail authorizetest.AuditTrail
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) {
		registering(new(clientStorage))(c)
		c.Audit = trail.Record
	}))
	_, c := register(b, clientMetadata(map[string]any{"post_logout_redirect_uris": []string{authorizetest.Callback}, "require_pushed_authorization_requests": true}), initialAccessToken)
	trail.Drain()
	const elsewhere = "https://app.example.org/elsewhere"
	r, got := updateClient(b, c, map[string]any{"client_id": c.ID, "client_secret": c.Secret, "redirect_uris": []string{elsewhere}})
	if r.StatusCode != http.StatusOK || got.ID != c.ID || got.URI != c.URI || got.AccessToken != c.AccessToken || got.IssuedAt != c.IssuedAt ||
		got.Secret != "" || got.Expires == nil || got.Name != "" || got.Scope != "openid email phone profile user/*.rs demo.read" ||
		got.Method != "client_secret_basic" || len(got.Redirects) != 1 || got.Redirects[0] != elsewhere || r.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%d %+v", r.StatusCode, got)
	}
	if want := "registration success user= client=" + c.ID + " scope="; trail.Drain() != want {
		t.Errorf("events %q", trail)
	}
	read := manageClient(b, http.MethodGet, c.URI, c.AccessToken)
	metadata := authorizetest.Decode[map[string]any](t, read)
	if metadata["post_logout_redirect_uris"] != nil || metadata["require_pushed_authorization_requests"] != nil || !reflect.DeepEqual(metadata["redirect_uris"], []any{elsewhere}) {
		t.Errorf("read again: %v", metadata)
	}
	q := authorizetest.Request(authorizetest.PKCE())
	q.Set("client_id", c.ID)
	if r := b.Authorize(q); r.StatusCode != http.StatusBadRequest {
		t.Errorf("the old redirect URI: %d", r.StatusCode)
	}
	q.Set("redirect_uri", elsewhere)
	if u := authorizetest.Location(t, b.Authorize(q)); u.Path != "/oauth2/login" {
		t.Errorf("the new redirect URI: %s", u)
	}
	if got := secretError(b, c.ID, c.Secret); got != "invalid_grant" {
		t.Errorf("the secret: %s", got)
	}
}

// secretError returns the error from the token endpoint for a request with the secret and an invalid code.
func secretError(b *authorizetest.Browser, id, secret string) string {
	b.T.Helper()
	return b.RequestTokens(authorizetest.CodeForm("x", url.Values{"client_id": {id}, "client_secret": {secret}})).Error
}

// After changing its authentication method, a client cannot use the old method.
func TestRegisteredMethodIsChanged(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, registering(new(clientStorage))))
	_, c := register(b, clientMetadata(nil), initialAccessToken)
	become := func(m map[string]any) registrationResponse {
		m["client_id"] = c.ID
		r, got := updateClient(b, c, m)
		if r.StatusCode != http.StatusOK {
			t.Fatalf("%d %+v", r.StatusCode, got)
		}
		return got
	}
	if got := become(withKeys(nil)); got.Secret != "" || got.Expires != nil || got.JWKS == nil {
		t.Errorf("with keys: %+v", got)
	}
	if old, by := secretError(b, c.ID, c.Secret), authorizetest.TryAssertion(b, c.ID, jose.ES384); old != "invalid_client" || by != "invalid_grant" {
		t.Errorf("with keys: by secret %s, by key %s", old, by)
	}
	become(withKeys(map[string]any{"jwks": json.RawMessage(authorizetest.PublicKeys(jose.RS256))}))
	if old, by := authorizetest.TryAssertion(b, c.ID, jose.ES384), authorizetest.TryAssertion(b, c.ID, jose.RS256); old != "invalid_client" || by != "invalid_grant" {
		t.Errorf("with other keys: by the old %s, by the new %s", old, by)
	}
	got := become(clientMetadata(nil))
	if len(got.Secret) != 43 || got.Secret == c.Secret || got.JWKS != nil {
		t.Errorf("with a secret: %+v", got)
	}
	if old, by, key := secretError(b, c.ID, c.Secret), secretError(b, c.ID, got.Secret), authorizetest.TryAssertion(b, c.ID, jose.RS256); old != "invalid_client" || by != "invalid_grant" || key != "invalid_client" {
		t.Errorf("with a secret: by the old %s, by the new %s, by key %s", old, by, key)
	}
	if got := become(clientMetadata(map[string]any{"token_endpoint_auth_method": "none"})); got.Secret != "" || got.Expires != nil {
		t.Errorf("public: %+v", got)
	}
	if old, by := secretError(b, c.ID, got.Secret), secretError(b, c.ID, ""); old != "invalid_client" || by != "invalid_grant" {
		t.Errorf("public: by secret %s, by nothing %s", old, by)
	}
}

func TestRegistrationChangeRefused(t *testing.T) {
	t.Parallel()
	storage := new(clientStorage)
	b := authorizetest.NewBrowser(t, authorizetest.New(t, registering(storage)))
	_, c := register(b, clientMetadata(nil), initialAccessToken)
	_, public := register(b, clientMetadata(map[string]any{"token_endpoint_auth_method": "none"}), initialAccessToken)
	before := string(storage.Files["fhir/clients/x/"+c.ID+".json"])
	for name, tt := range map[string]struct {
		client registrationResponse
		change map[string]any
		want   string
	}{
		"no client_id":            {c, nil, "invalid_client_metadata"},
		"another's client_id":     {c, map[string]any{"client_id": public.ID}, "invalid_client_metadata"},
		"a secret of its own":     {c, map[string]any{"client_id": c.ID, "client_secret": "chosen"}, "invalid_client_metadata"},
		"a secret where is none":  {public, map[string]any{"client_id": public.ID, "client_secret": "chosen"}, "invalid_client_metadata"},
		"a scope beyond the list": {c, map[string]any{"client_id": c.ID, "scope": "user/*.cruds"}, "invalid_client_metadata"},
		"no redirect URI":         {c, map[string]any{"client_id": c.ID, "redirect_uris": nil}, "invalid_redirect_uri"},
		"keys that are missing":   {c, map[string]any{"client_id": c.ID, "token_endpoint_auth_method": "private_key_jwt"}, "invalid_client_metadata"},
	} {
		if r, got := updateClient(b, tt.client, clientMetadata(tt.change)); r.StatusCode != http.StatusBadRequest || got.Error != tt.want {
			t.Errorf("%s: %d %+v", name, r.StatusCode, got)
		}
	}
	if after := string(storage.Files["fhir/clients/x/"+c.ID+".json"]); after != before {
		t.Errorf("changed to %s", after)
	}
	delete(storage.Files, "fhir/clients/x/"+c.ID+".json") // simulate a deletion by another gateway
	if r, got := updateClient(b, c, clientMetadata(map[string]any{"client_id": c.ID})); r.StatusCode != http.StatusUnauthorized || got.Error != "invalid_token" || len(storage.Files) != 1 {
		t.Errorf("a client that is gone: %d %+v", r.StatusCode, got)
	}
}

// If a registration to be changed is damaged, the operator's log contains its file, even while an intact copy is cached.
func TestChangeOfUnreadableRegistration(t *testing.T) {
	t.Parallel()
	storage, log := new(clientStorage), new(strings.Builder)
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) {
		registering(storage)(c)
		c.Logger = slog.New(slog.NewTextHandler(log, nil))
	}))
	_, c := register(b, clientMetadata(nil), initialAccessToken)
	file := "fhir/clients/x/" + c.ID + ".json"
	storage.Files[file] = []byte("{")
	r, _ := updateClient(b, c, clientMetadata(map[string]any{"client_id": c.ID}))
	if r.StatusCode != http.StatusServiceUnavailable || !strings.Contains(log.String(), file+" in Caddy's storage: ") {
		t.Errorf("%d, log %q", r.StatusCode, log)
	}
}

// The server metadata includes the capabilities of registered clients.
func TestDiscoveryOfRegisteredClients(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) {
		registering(new(clientStorage))(c)
		options := optionsOf(c)
		options.Scopes = append(options.Scopes, "offline_access")
	}))
	type lists struct {
		Grants []string `json:"grant_types_supported"`
		Scopes []string `json:"scopes_supported"`
	}
	if m := authorizetest.Decode[lists](t, b.Get("/.well-known/openid-configuration")); !slices.Contains(m.Grants, "refresh_token") || !slices.Contains(m.Scopes, "offline_access") {
		t.Errorf("%v", m)
	}
	if _, c := register(b, clientMetadata(map[string]any{"scope": "openid offline_access"}), initialAccessToken); strings.Join(c.GrantTypes, " ") != "authorization_code refresh_token" {
		t.Errorf("%v", c.GrantTypes)
	}
}

// registeredTokens signs alice in to a self-registered app with a secret. It returns the app's tokens.
func registeredTokens(b *authorizetest.Browser, c registrationResponse, change url.Values) authorizetest.TokenResponse {
	b.T.Helper()
	q := authorizetest.Request(nil)
	q.Set("client_id", c.ID)
	maps.Copy(q, change)
	_, sealed := b.OpenForm(b.SignIn(q, "alice", "right"))
	answer := authorizetest.Location(b.T, b.Post("/oauth2/consent", authorizetest.DecisionForm(sealed, "allow")))
	return b.RequestTokens(authorizetest.CodeForm(answer.Query().Get("code"), url.Values{"client_id": {c.ID}, "client_secret": {c.Secret}}))
}

// With `pkce optional`, a confidential client may check the nonce instead of using PKCE (RFC 9700 §2.1.1). A public client must
// always use PKCE.
func TestRegisteredClientsWithoutPKCE(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		pkce, method string
		wantError    bool
	}{
		{"", "client_secret_post", true}, {client.PKCERequired, "client_secret_post", true},
		{client.PKCEOptional, "client_secret_post", false}, {client.PKCEOptional, "none", true},
	} {
		b := authorizetest.NewBrowser(t, authorizetest.New(t, registeringWith(func(r *registration.Registration) { r.PKCE = tt.pkce })))
		_, c := register(b, clientMetadata(map[string]any{"token_endpoint_auth_method": tt.method}), initialAccessToken)
		q := authorizetest.Request(url.Values{"client_id": {c.ID}})
		if u := authorizetest.Location(t, b.Authorize(q)); (u.Query().Get("error") == "invalid_request") != tt.wantError {
			t.Errorf("%+v: %s", tt, u)
		}
	}
	b := authorizetest.NewBrowser(t, authorizetest.New(t, registeringWith(func(r *registration.Registration) { r.PKCE = client.PKCEOptional })))
	_, c := register(b, clientMetadata(withSecret), initialAccessToken)
	if got := registeredTokens(b, c, nil); got.AccessToken == "" {
		t.Errorf("%+v", got)
	}
}

// An app can register any userinfo signing algorithm in the server metadata (OpenID Connect Core §5.3.2). The userinfo JWT
// cannot be used as any other kind of token.
func TestRegisteredUserinfoIsSigned(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, registeringWith(func(r *registration.Registration) { r.PKCE = client.PKCEOptional })))
	discovery := authorizetest.Decode[struct {
		Algorithms []string `json:"userinfo_signing_alg_values_supported"`
	}](t, b.Get("/.well-known/openid-configuration"))
	authorizetest.Equal(t, strings.Join(discovery.Algorithms, " "), "RS256 ES256")
	for _, algorithm := range discovery.Algorithms {
		t.Run(algorithm, func(t *testing.T) {
			b := authorizetest.NewBrowser(t, b.Server)
			metadata := clientMetadata(withSecret)
			metadata["userinfo_signed_response_alg"] = algorithm
			_, c := register(b, metadata, initialAccessToken)
			tokens := registeredTokens(b, c, nil)
			r := b.Userinfo(tokens.AccessToken)
			signed := authorizetest.Body(t, r)
			if kind := r.Header.Get("Content-Type"); kind != "application/jwt" || r.Header.Get("Cache-Control") != "no-store" {
				t.Fatalf("%d %v: %s", r.StatusCode, r.Header, signed)
			}
			if jws, err := jose.ParseSignedCompact(signed, []jose.SignatureAlgorithm{jose.SignatureAlgorithm(algorithm)}); err != nil {
				t.Errorf("%v, %v", jws, err)
			}
			want := map[string]any{"iss": authorizetest.Issuer, "aud": c.ID, "sub": "alice"}
			if got := b.Claims(signed); !maps.Equal(got, want) {
				t.Errorf("claims %v", got)
			}
			if b.IsTokenValid(signed) {
				t.Error("it passes for an access token")
			}
			q := authorizetest.Request(url.Values{"client_id": {c.ID}, "prompt": {"none"}, "id_token_hint": {signed}})
			if u := authorizetest.Location(t, b.Authorize(q)); u.Query().Get("error") != "invalid_request" {
				t.Errorf("as id_token_hint: %s", u)
			}
		})
	}
}

// A registered client receives logout tokens at its backchannel_logout_uri (OpenID Connect Back-Channel Logout §2.2).
func TestRegisteredClientGetsLogoutToken(t *testing.T) {
	t.Parallel()
	logoutTokens := make(chan string, 1)
	party := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { logoutTokens <- r.PostFormValue("logout_token") }))
	t.Cleanup(party.Close)
	s := authorizetest.New(t, registeringWith(func(r *registration.Registration) {
		r.PKCE, r.Transport = client.PKCEOptional, party.Client().Transport
	}))
	b := authorizetest.NewBrowser(t, s)
	metadata := clientMetadata(withSecret)
	metadata["backchannel_logout_uri"], metadata["backchannel_logout_session_required"] = party.URL, true
	_, c := register(b, metadata, initialAccessToken)
	read := authorizetest.Decode[map[string]any](t, manageClient(b, http.MethodGet, c.URI, c.AccessToken))
	if read["backchannel_logout_uri"] != party.URL || read["backchannel_logout_session_required"] != true {
		t.Errorf("registered: %v", read)
	}
	sid := b.Claims(registeredTokens(b, c, nil).IDToken)["sid"]
	if _, err := s.EndSessions(t.Context(), "alice"); err != nil {
		t.Fatal(err)
	}
	if got := b.Claims(<-logoutTokens); got["aud"] != c.ID || got["sid"] != sid || sid == nil {
		t.Errorf("logout token %v, session %v", got, sid)
	}
}

// If this server accepts request objects, a registered app can require that its request objects be signed (RFC 9101 §10.5).
func TestRegisteredRequestObjectsRequired(t *testing.T) {
	t.Parallel()
	keys := json.RawMessage(authorizetest.PublicKeys(jose.RS256))
	for name, tt := range map[string]struct {
		accepted bool
		metadata map[string]any
		want     string // substring of the error
	}{
		"private_key_jwt":         {true, map[string]any{"token_endpoint_auth_method": "private_key_jwt", "jwks": keys}, ""},
		"a secret, and keys":      {true, map[string]any{"jwks": keys}, ""},
		"a public client's keys":  {true, map[string]any{"token_endpoint_auth_method": "none", "jwks": keys, "request_object_signing_alg": "RS256"}, ""},
		"no keys":                 {true, nil, "invalid_client_metadata"},
		"alg none":                {true, map[string]any{"jwks": keys, "request_object_signing_alg": "none"}, "invalid_client_metadata"},
		"no number of the truth":  {true, map[string]any{"jwks": keys, "require_signed_request_object": "true"}, "invalid_client_metadata"},
		"no request objects here": {false, map[string]any{"jwks": keys}, "invalid_client_metadata"},
	} {
		t.Run(name, func(t *testing.T) {
			b := authorizetest.NewBrowser(t, authorizetest.New(t, registeringWith(func(r *registration.Registration) { r.PKCE, r.RequestObjects = client.PKCEOptional, tt.accepted })))
			metadata := clientMetadata(map[string]any{"require_signed_request_object": true})
			maps.Copy(metadata, tt.metadata)
			_, c := register(b, metadata, initialAccessToken)
			if c.Error != tt.want {
				t.Fatalf("%q, want %q", c.Error, tt.want)
			}
			if tt.want != "" {
				return
			}
			r := httptest.NewRequest(http.MethodGet, c.URI, nil)
			r.Header.Set("Authorization", "Bearer "+c.AccessToken)
			if read := authorizetest.Decode[map[string]any](t, b.Send(r)); read["require_signed_request_object"] != true {
				t.Errorf("read as %v", read)
			}
			q := url.Values{"client_id": {c.ID}, "response_type": {"code"}, "scope": {"openid"}, "redirect_uri": {authorizetest.Callback}, "nonce": {"n"}}
			q.Set("code_challenge", authorizetest.S256(authorizetest.Verifier))
			q.Set("code_challenge_method", "S256")
			authorizetest.WantError(t, authorizetest.Location(t, b.Authorize(q)), "invalid_request", "without a request object")
			claims := map[string]any{"iss": c.ID, "sub": nil, "aud": authorizetest.Issuer, "nbf": time.Now().Unix(), "jti": nil}
			for name, values := range q {
				claims[name] = values[0]
			}
			object := authorizetest.Assertion(t, jose.RS256, claims, nil)
			if u := authorizetest.Location(t, b.Authorize(url.Values{"client_id": {c.ID}, "request": {object}})); u.Query().Has("error") {
				t.Errorf("signed: %s", u)
			}
		})
	}
}
