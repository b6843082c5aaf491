package sandbox

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// Metrics know the endpoints.
func TestEndpointsHaveNames(t *testing.T) {
	t.Parallel()
	for _, path := range []string{launchPagePath, appPath} {
		if name := endpoint.Name(path); !slices.Contains(endpoint.Names(), name) {
			t.Errorf("%q is not among the endpoints", name)
		}
	}
}

// A server that launches apps by its page alone announces what works by it, and nothing else about launches.
func TestCapabilities(t *testing.T) {
	t.Parallel()
	b := sandboxServer(t, new(authorizetest.FHIRServer), func(c *authorize.Config) {
		c.Clients[0].Scopes = []string{"launch", "launch/patient", "launch/encounter", "patient/*.rs"}
	})
	handle := launchByPage(b, url.Values{"app": {"app"}, "encounter": {"latest"}}).Query().Get("launch")
	answer := authorizetest.Location(t, b.Authorize(authorizetest.Request(url.Values{"scope": {"launch"}, "launch": {handle}})))
	tokens := authorizetest.Decode[map[string]any](t, b.Post("/oauth2/token", authorizetest.CodeForm(answer.Query().Get("code"), nil)))
	announced := authorizetest.Decode[smart.Configuration](t, b.Get("/fhir/R4/.well-known/smart-configuration")).Capabilities
	for capability, member := range map[string]string{
		"launch-ehr": "patient", "context-banner": "need_patient_banner", "context-style": "smart_style_url",
		"context-ehr-patient": "patient", "context-ehr-encounter": "encounter",
	} {
		if slices.Contains(announced, capability) != (tokens[member] != nil) {
			t.Errorf("%s announced: %t, but %s is %v", capability, slices.Contains(announced, capability), member, tokens[member])
		}
	}
}

// A session of before the person had a second factor does not open the page without it, nor send a form that was left open.
func TestSessionOfBeforeTheFactor(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(b *authorizetest.Browser) (ask func() *http.Response){
		"the page": func(b *authorizetest.Browser) func() *http.Response {
			return func() *http.Response { return b.Get(launchPagePath) }
		},
		"its form": func(b *authorizetest.Browser) func() *http.Response {
			form := launchChoice(t, authorizetest.Body(t, b.Get(launchPagePath)), nil)
			return func() *http.Response { return b.Post(launchPagePath, form) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := authorizetest.New(t, func(c *authorize.Config) {
				c.Records = new(authorizetest.FHIRServer)
				new(Sandbox).addTo(c)
			})
			owner, thief := authorizetest.AtAccount(t, s), authorizetest.AtAccount(t, s)
			ask := open(thief)
			authorizetest.EnrolApp(owner)
			if r := authorizetest.FollowOnce(thief, ask()); !strings.Contains(r.Header.Get("Location"), "/oauth2/login?factor=") {
				t.Errorf("%d to %q", r.StatusCode, r.Header.Get("Location"))
			}
			authorizetest.WantStatus(t, owner.Get(launchPagePath), http.StatusOK, "the owner's")
		})
	}
}

// Repeated launches of an app take a bounded number of store entries, and do not lengthen entries that are never read.
func TestLaunchesDoNotFillTheStore(t *testing.T) {
	t.Parallel()
	memory := store.NewMemory(0, 0)
	b := sandboxServer(t, new(authorizetest.FHIRServer), func(c *authorize.Config) { c.Store, c.Durable = memory, memory })
	launch := func() { launchByForm(t, b, url.Values{"junk": {strings.Repeat("&", 2000)}}) }
	openLaunchPage(b, "alice", "right")
	launch()
	before, _ := memory.Size()
	for range 450 {
		launch()
	}
	if after, _ := memory.Size(); after-before > 100 {
		t.Errorf("%d entries more", after-before)
	}
	_ = memory.Entries(t.Context(), func(key string, value []byte, _ time.Duration) error {
		if len(value) > 1500 {
			t.Errorf("an entry of %d bytes: %s", len(value), key)
		}
		return nil
	})
}

// launchByForm launches an app for the user who is signed in.
func launchByForm(t *testing.T, b *authorizetest.Browser, change url.Values) {
	t.Helper()
	r := b.Post(launchPagePath, launchChoice(t, authorizetest.Body(t, b.Get(launchPagePath)), change))
	if opened, err := r.Location(); err != nil || !opened.Query().Has("launch") {
		t.Fatalf("no launch: %d to %v", r.StatusCode, opened)
	}
}

// The clients outlive changes of other clients in the store.
func TestClientsOutliveDrafts(t *testing.T) {
	t.Parallel()
	c := authorizetest.Config()
	new(Sandbox).addTo(&c)
	s, err := authorize.New(c)
	authorizetest.NoError(t, err)
	draft := s.Draft()
	authorizetest.NoError(t, draft.AddClient(client.Client{ID: "new", RedirectURIs: []string{authorizetest.Callback}}))
	s, err = draft.Server()
	authorizetest.NoError(t, err)
	if s.Clients().Configured(appID) == nil || !s.Serves(launchPagePath) {
		t.Error("without the app or its page")
	}
}
