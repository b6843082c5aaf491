package authorize_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
)

// A draft's server has the added users and clients and lacks the removed ones. The server that the draft was made from does
// not change.
func TestDraft(t *testing.T) {
	t.Parallel()
	wendy := people.User{ID: "wendy", PasswordHash: "right", Email: "wendy@example.org", EmailVerified: true}
	chart := client.Client{ID: "chart", RedirectURIs: []string{"https://chart.example/callback"}, Scopes: []string{"chart.read"}}
	before := authorizetest.New(t, nil)
	draft := before.Draft()
	for name, err := range map[string]error{"a user": draft.AddUser(wendy), "a client": draft.AddClient(chart)} {
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	for name, err := range map[string]error{
		"the user again": draft.AddUser(wendy), "the client again": draft.AddClient(chart),
		"a user named like a client":   draft.AddUser(people.User{ID: "chart", PasswordHash: "x"}),
		"a client named like a user":   draft.AddClient(client.Client{ID: "wendy"}),
		"a client of an unknown idp":   draft.AddClient(client.Client{ID: "x", IdentityProviders: []string{"nowhere"}}),
		"a user without a password":    draft.AddUser(people.User{ID: "x"}),
		"a user named like nobody can": draft.AddUser(people.User{ID: "x\n", PasswordHash: "x"}),
	} {
		if err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	with, err := draft.Server()
	if err != nil {
		t.Fatal(err)
	}
	removing := with.Draft()
	removing.RemoveUser("wendy")
	removing.RemoveClient("chart")
	removing.RemoveClient("chart")
	without, err := removing.Server()
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		server *authorize.Server
		want   bool
	}{"before": {before, false}, "with them": {with, true}, "without them": {without, false}} {
		if got := tt.server.AllowsOrigin("https://chart.example"); got != tt.want {
			t.Errorf("%s: the client's origin: %v", name, got)
		}
		if got, err := tt.server.Clients().Find(t.Context(), "chart"); (got != nil) != tt.want || err != nil {
			t.Errorf("%s: the client: %v, %v", name, got, err)
		}
		meant, err := tt.server.Meant(t.Context(), "Wendy@example.org")
		if got := strings.HasPrefix(meant, "local:wendy"); got != tt.want || err != nil {
			t.Errorf("%s: the user's address means %q, %v", name, meant, err)
		}
		b := authorizetest.NewBrowser(t, tt.server)
		metadata := authorizetest.Decode[map[string]any](t, b.Get("/.well-known/openid-configuration"))
		if got := slices.Contains(metadata["scopes_supported"].([]any), any("chart.read")); got != tt.want {
			t.Errorf("%s: scopes %v", name, metadata["scopes_supported"])
		}
		signedIn := b.SignIn(authorizetest.Request(nil), "wendy", "right").StatusCode
		if got := signedIn == http.StatusFound || signedIn == http.StatusSeeOther; got != tt.want {
			t.Errorf("%s: the user signs in: %d", name, signedIn)
		}
	}
}

// A draft's server keeps the cached discovery documents of identity providers: after a change of users, people can sign in
// while a provider's discovery is down.
func TestDraftKeepsProviders(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	server := authorizetest.NewFederated(t, p, nil)
	b := authorizetest.NewBrowser(t, server)
	begin := func() *http.Response {
		return authorizetest.FollowOnce(b, b.Authorize(authorizetest.Request(authorizetest.ByProvider("hospital"))))
	}
	authorizetest.Location(t, begin())
	p.Fail(providertest.Discovery, providertest.Status(http.StatusServiceUnavailable))
	var err error
	if b.Server, err = server.Draft().Server(); err != nil {
		t.Fatal(err)
	}
	if at := authorizetest.Location(t, begin()); !strings.HasPrefix(at.String(), p.Issuer) {
		t.Errorf("not sent to the provider: %v", at)
	}
}
