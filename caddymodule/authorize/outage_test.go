package authorize_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
)

// What a request is answered while the store is away.
type duringOutage int

const (
	unavailable            duringOutage = iota // 503, when to try again, and an entry in the audit trail
	temporarilyUnavailable                     // the same to the client, through the browser
	goesOn                                     // as ever
	refusedByStore                             // 400, as back-channel logout has it
)

// outageRequests are requests to all endpoints.
var outageRequests = []struct {
	name    string
	request func(t *testing.T, b *servertest.Browser, p *authorizetest.Provider) func() *http.Request
	during  duringOutage
}{
	{"authorize, signed in", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
		b.Answer(servertest.Request(nil))
		return authorizing(servertest.Request(nil))
	}, temporarilyUnavailable},
	{"authorize, not signed in", func(*testing.T, *servertest.Browser, *authorizetest.Provider) func() *http.Request {
		return authorizing(servertest.Request(nil))
	}, goesOn},
	{"authorize, pushed", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
		_, answer := servertest.Push(b, servertest.KnownPush(nil))
		return authorizing(url.Values{"client_id": {"confidential"}, "request_uri": {answer.RequestURI}})
	}, unavailable},
	{"login, the page", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
		return getting(servertest.Location(b.T, b.Authorize(servertest.Request(nil))).String())
	}, temporarilyUnavailable},
	{"login", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
		_, sealed := b.OpenForm(b.Authorize(servertest.Request(nil)))
		return posting("/oauth2/login", typed(sealed, "alice", "right"))
	}, temporarilyUnavailable},
	{"login, the second factor", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
		factor := b.OpenSecondFactor(b.SignIn(servertest.Request(nil), "carol", "third"))
		return posting("/oauth2/login", url.Values{"factor": {factor}, "code": {servertest.CodeNow()}})
	}, unavailable},
	{"callback", func(_ *testing.T, b *servertest.Browser, p *authorizetest.Provider) func() *http.Request {
		return getting("/oauth2/callback/hospital?" + atProvider(b, p, nil).Encode())
	}, temporarilyUnavailable},
	{"consent", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
		_, sealed := b.OpenForm(b.SignIn(servertest.Request(url.Values{"client_id": {"careful"}}), "alice", "right"))
		return posting("/oauth2/consent", servertest.Decision(sealed, "allow"))
	}, unavailable},
	{"select account", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
		b.Answer(servertest.Request(nil))
		_, sealed := b.OpenForm(b.Authorize(servertest.Request(url.Values{"prompt": {"select_account"}})))
		return posting("/oauth2/select_account", servertest.Decision(sealed, "continue"))
	}, unavailable},
	{"token, a code", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
		return posting("/oauth2/token", servertest.CodeForm(b.Code(servertest.OfflineAccess(nil)), nil))
	}, unavailable},
	{"token, a refresh token", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
		return posting("/oauth2/token", servertest.RefreshForm(b.Tokens(servertest.OfflineAccess(nil)).Refresh, nil))
	}, unavailable},
	{"token, by an assertion", func(t *testing.T, _ *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
		return posting("/oauth2/token", asserted(t, url.Values{"grant_type": {"client_credentials"}, "scope": {"system/*.rs"}}))
	}, unavailable},
	{"par", func(*testing.T, *servertest.Browser, *authorizetest.Provider) func() *http.Request {
		return posting("/oauth2/par", servertest.KnownPush(nil))
	}, unavailable},
	{"revoke", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
		return posting("/oauth2/revoke", url.Values{"client_id": {"app"}, "token": {b.Tokens(nil).AccessToken}})
	}, unavailable},
	{"introspect", func(t *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
		return posting("/oauth2/introspect", asserted(t, url.Values{"token": {b.Tokens(nil).AccessToken}}))
	}, unavailable},
	{"userinfo", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
		token := b.Tokens(nil).AccessToken
		return func() *http.Request {
			r := getting("/oauth2/userinfo")()
			r.Header.Set("Authorization", "Bearer "+token)
			return r
		}
	}, unavailable},
	{"logout", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
		q := url.Values{"id_token_hint": {b.Tokens(nil).IDToken}, "post_logout_redirect_uri": {servertest.AfterLogout}}
		return getting("/oauth2/logout?" + q.Encode())
	}, unavailable},
	{"logout, by the provider", func(_ *testing.T, b *servertest.Browser, p *authorizetest.Provider) func() *http.Request {
		servertest.Federate(b, nil)
		return posting("/oauth2/backchannel_logout/hospital", url.Values{"logout_token": {p.LogoutToken()}})
	}, refusedByStore},
	{"account", func(_ *testing.T, b *servertest.Browser, _ *authorizetest.Provider) func() *http.Request {
		servertest.SignInToAccount(b, "alice", "right")
		return getting("/oauth2/account")
	}, unavailable},
	{"launch", func(*testing.T, *servertest.Browser, *authorizetest.Provider) func() *http.Request {
		return posting("/oauth2/launch", url.Values{"client_id": {"ehr"}, "client_secret": {"ehr-secret-0123456789"}, "app": {"app"}, "patient": {"ada"}, "user": {"alice"}})
	}, unavailable},
	{"keys", func(*testing.T, *servertest.Browser, *authorizetest.Provider) func() *http.Request {
		return getting(endpoint.JWKS)
	}, goesOn},
	{"openid-configuration", func(*testing.T, *servertest.Browser, *authorizetest.Provider) func() *http.Request {
		return getting("/.well-known/openid-configuration")
	}, goesOn},
	{"oauth-authorization-server", func(*testing.T, *servertest.Browser, *authorizetest.Provider) func() *http.Request {
		return getting("/.well-known/oauth-authorization-server")
	}, goesOn},
	{"smart-configuration", func(*testing.T, *servertest.Browser, *authorizetest.Provider) func() *http.Request {
		return getting("/fhir/R4/.well-known/smart-configuration")
	}, goesOn},
	{"style.json", func(*testing.T, *servertest.Browser, *authorizetest.Provider) func() *http.Request {
		return getting(endpoint.SMARTStyle)
	}, goesOn},
}

// While the store is away, what needs it says so, and what does not goes on. Once it is back,
// the same request succeeds.
func TestStoreIsAway(t *testing.T) {
	t.Parallel()
	for _, tt := range outageRequests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, shared := authorizetest.Start(t), storetest.NewShared()
			var events []audit.Event
			server := servertest.New(t, func(c *authorize.Config) {
				faultConfig(p, &stores{clients: &faultyClients{faults: new(faults)}})(c)
				servertest.WithEHR(c)
				c.Store = shared.Gateway()
				c.Durable = c.Store
				c.Audit = func(_ context.Context, e audit.Event) { events = append(events, e) }
			})
			b := servertest.NewBrowser(t, server)
			request := tt.request(t, b, p)
			events = nil
			shared.SetDown(true)
			checkOutage(t, b.Send(request()), tt.during)
			events = slices.DeleteFunc(events, func(e audit.Event) bool { return !errors.Is(e.Err, store.ErrUnavailable) })
			if (len(events) == 1) != (tt.during != goesOn) {
				t.Errorf("%d events: %+v", len(events), events)
			}
			shared.SetDown(false)
			if r := b.Send(request()); r.StatusCode >= http.StatusBadRequest || leadsTo("error=")(r) {
				t.Errorf("afterwards: %d to %q: %s", r.StatusCode, r.Header.Get("Location"), servertest.Body(t, r))
			}
		})
	}
}

func checkOutage(t *testing.T, r *http.Response, want duringOutage) {
	t.Helper()
	body := servertest.Body(t, r)
	right := false
	switch want {
	case unavailable:
		right = r.StatusCode == http.StatusServiceUnavailable && r.Header.Get("Retry-After") != "" && namesNoCause(r, body)
	case temporarilyUnavailable:
		right = r.StatusCode == http.StatusFound && leadsTo("error=temporarily_unavailable")(r)
	case goesOn:
		right = r.StatusCode < http.StatusBadRequest && !leadsTo("error=")(r)
	case refusedByStore:
		right = r.StatusCode == http.StatusBadRequest
	}
	if !right {
		t.Errorf("%d, Retry-After %q, to %q: %s", r.StatusCode, r.Header.Get("Retry-After"), r.Header.Get("Location"), strings.Join(strings.Fields(body)[max(0, len(strings.Fields(body))-40):], " "))
	}
}

// namesNoCause reports whether an answer to a client tells no more than that this server
// failed.
func namesNoCause(r *http.Response, body string) bool {
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		return !strings.Contains(body, "store")
	}
	var answer map[string]string
	return json.Unmarshal([]byte(body), &answer) == nil && len(answer) == 1 && answer["error"] == "server_error"
}
