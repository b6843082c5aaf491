package e2e

import (
	"net/http"
	"testing"
	"time"

	"golang.org/x/oauth2"
)

// hospitalized is somebody of Keycloak who has signed in to the demo app, with a refresh token that ends with the session or
// outlives it.
type hospitalized struct {
	*person
	app             oauth2.Config
	online, offline *oauth2.Token
}

// arrive signs somebody in at Keycloak, once; the second app finds the session.
func (g *gateway) arrive(t *testing.T, name string) *hospitalized {
	t.Helper()
	h := &hospitalized{person: g.newPerson(t)}
	for _, token := range []struct {
		scope string
		to    **oauth2.Token
	}{{"online_access", &h.online}, {"offline_access", &h.offline}} {
		app, verifier := g.demoApp(t, "openid", "user/*.rs", token.scope), oauth2.GenerateVerifier()
		end := h.walk(t, app.AuthCodeURL("state", oauth2.S256ChallengeOption(verifier), by("hospital")), appCallback, keycloakForm(name))
		got, err := app.Exchange(g.context(t), end.Query().Get("code"), oauth2.VerifierOption(verifier))
		if err != nil {
			t.Fatalf("%s, %s: %v at %s", name, token.scope, err, end)
		}
		*token.to, h.app = got, *app
	}
	return h
}

// refresh uses a refresh token, and keeps the next.
func (h *hospitalized) refresh(t *testing.T, token **oauth2.Token) error {
	t.Helper()
	next, err := h.app.TokenSource(h.gateway.context(t), &oauth2.Token{RefreshToken: (*token).RefreshToken}).Token()
	if err == nil {
		*token = next
	}
	return err
}

// reads returns the status of a FHIR request by a token.
func (h *hospitalized) reads(t *testing.T, token *oauth2.Token) int {
	t.Helper()
	return h.gateway.expand(t, token.AccessToken, gender).status
}

// Whoever may no longer sign in at Keycloak loses what they have here: at the next refresh, or when the gateway asks.
func TestKeycloakPeople(t *testing.T) {
	k := startKeycloak(t)
	address := mustFreeAddress(t)
	k.addClient(t, "https://"+address)
	clinicians := k.realm(t, http.MethodPost, "/groups", map[string]any{"name": "clinicians"})
	g := federatedGateway(t, "gateway-keycloak", address, []string{
		idpBlock("hospital", k.issuer(), "caddy-fhir", "secret-of-caddy-fhir", "allow group clinicians", "revalidate 1m 8h"),
	}, "scope offline_access", "scope online_access offline_access")
	ids, people := map[string]string{}, map[string]*hospitalized{}
	for _, name := range []string{"signedout", "stays", "disabled", "deleted", "ungrouped"} {
		ids[name] = k.addUser(t, name, clinicians)
		people[name] = g.arrive(t, name)
	}
	for name, p := range people {
		if got := p.reads(t, p.online); got != http.StatusOK {
			t.Fatalf("%s: %d before", name, got)
		}
	}
	k.realm(t, http.MethodPut, "/users/"+ids["disabled"], map[string]any{"enabled": false})
	k.realm(t, http.MethodDelete, "/users/"+ids["deleted"], nil)
	k.realm(t, http.MethodDelete, "/users/"+ids["ungrouped"]+"/groups/"+clinicians, nil)
	k.realm(t, http.MethodPost, "/users/"+ids["signedout"]+"/logout", nil)

	t.Run("refresh within 10 s", func(t *testing.T) {
		for name, p := range people {
			for kind, token := range map[string]**oauth2.Token{"offline": &p.offline, "online": &p.online} {
				if name != "stays" {
					p.eventually(t, name+", "+kind, 15*time.Second, func() bool { return p.refresh(t, token) != nil })
				} else if err := p.refresh(t, token); err != nil {
					t.Errorf("who stays, %s: %v", kind, err)
				}
			}
		}
	})
	t.Run("FHIR requests within the interval", func(t *testing.T) {
		for name, p := range people {
			if name == "stays" {
				continue
			}
			p.eventually(t, name, 90*time.Second, func() bool {
				return p.reads(t, p.online) == http.StatusUnauthorized && p.reads(t, p.offline) == http.StatusUnauthorized
			})
		}
		if got := people["stays"].reads(t, people["stays"].online); got != http.StatusOK {
			t.Errorf("who stays: %d", got)
		}
	})
	t.Run("Keycloak is down and back", func(t *testing.T) {
		p := people["stays"]
		k.process.stop()
		if err := p.refresh(t, &p.offline); err != nil {
			t.Errorf("while it is down: %v", err)
		}
		k.start(t)
		if err := p.refresh(t, &p.offline); err != nil {
			t.Errorf("offline, after it came back: %v", err)
		}
		if err := p.refresh(t, &p.online); err != nil {
			t.Errorf("online, after it came back: %v", err)
		}
		if end := p.get(t, p.app.AuthCodeURL("again", by("hospital"))).location(t); !end.Query().Has("code") {
			t.Errorf("sent to %s, want a code", end)
		}
	})
}

// eventually waits until something is so.
func (h *hospitalized) eventually(t *testing.T, what string, bound time.Duration, so func() bool) {
	t.Helper()
	deadline, ticker := time.After(bound), time.NewTicker(500*time.Millisecond)
	defer ticker.Stop()
	for !so() {
		select {
		case <-deadline:
			t.Errorf("%s: not after %v", what, bound)
			return
		case <-ticker.C:
		}
	}
}
