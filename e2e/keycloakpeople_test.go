package e2e

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/oauth2"
)

// keycloakUser is a Keycloak user who has signed in to the demo app. The user has a refresh token that expires with the
// session, and one that outlives it.
type keycloakUser struct {
	*person
	id              string // user id in Keycloak
	app             oauth2.Config
	online, offline *oauth2.Token
}

// arrive signs a user in at Keycloak. The user enters the password once: the second app uses the existing session.
func (g *gateway) arrive(t *testing.T, name, idp string) *keycloakUser {
	t.Helper()
	h := &keycloakUser{person: g.newPerson(t)}
	for _, token := range []struct {
		scope string
		to    **oauth2.Token
	}{{"online_access", &h.online}, {"offline_access", &h.offline}} {
		app, verifier := g.demoApp(t, "openid", "user/*.rs", token.scope), oauth2.GenerateVerifier()
		end := h.walk(t, app.AuthCodeURL("state", oauth2.S256ChallengeOption(verifier), withIDP(idp)), appCallback, keycloakForm(name))
		got, err := app.Exchange(g.context(t), end.Query().Get("code"), oauth2.VerifierOption(verifier))
		if err != nil {
			t.Fatalf("%s, %s: %v at %s", name, token.scope, err, end)
		}
		*token.to, h.app = got, *app
	}
	return h
}

// refresh redeems a refresh token and replaces it with the new one.
func (h *keycloakUser) refresh(t *testing.T, token **oauth2.Token) error {
	t.Helper()
	next, err := h.app.TokenSource(h.gateway.context(t), &oauth2.Token{RefreshToken: (*token).RefreshToken}).Token()
	if err == nil {
		*token = next
	}
	return err
}

// reads returns the status of a FHIR request with the token.
func (h *keycloakUser) reads(t *testing.T, token *oauth2.Token) int {
	t.Helper()
	return h.gateway.expand(t, token.AccessToken, gender).status
}

// fates are the events that happen to users in Keycloak, and the users' names. For the user introspected, Keycloak issues no
// refresh token.
var fates = []string{"stays", "repassworded", "signedout", "disabled", "deleted", "ungrouped", "introspected"}

// keepsAccess reports whether a user should still have access after the event.
func keepsAccess(fate string) bool { return fate == "stays" || fate == "repassworded" }

// wardGateways is one gateway, or several gateways that share a store, with signed-in users.
type wardGateways struct {
	name   string
	people map[string]*keycloakUser // users by event
}

// openWard starts the gateways and signs a user in for each event.
func (k *keycloakServer) openWard(t *testing.T, name, clinicians string) *wardGateways {
	t.Helper()
	address, hospital, clinic := mustFreeAddress(t), "hospital-"+name, "clinic-"+name
	k.addClient(t, "https://"+address, hospital, nil)
	k.addClient(t, "https://"+address, clinic, map[string]string{"use.refresh.tokens": "false", "access.token.lifespan": "3600"})
	var idps []string
	for _, idp := range []string{hospital, clinic} {
		idps = append(idps, idpBlock(idp, k.issuer(), idp, "secret-of-caddy-fhir", "allow group clinicians", "revalidate 1m 8h"))
	}
	g := federatedGateway(t, "gateway-keycloak-"+name, address, idps, "scope offline_access", "scope online_access offline_access")
	w := &wardGateways{name, map[string]*keycloakUser{}}
	for _, fate := range fates {
		idp := hospital
		if fate == "introspected" {
			idp = clinic
		}
		id := k.addUser(t, fate+"-"+name, clinicians)
		p := g.arrive(t, fate+"-"+name, idp)
		p.id, w.people[fate] = id, p
		if got := p.reads(t, p.online); got != http.StatusOK {
			t.Fatalf("%s, %s: %d before", name, fate, got)
		}
	}
	return w
}

// openWards opens a ward with one gateway and a ward with three; with REPLICAS, only one ward.
func (k *keycloakServer) openWards(t *testing.T, clinicians string) []*wardGateways {
	t.Helper()
	wards := []*wardGateways{k.openWard(t, "one", clinicians)}
	if replicasStore != "" {
		return wards
	}
	for _, program := range []string{"redis-server", "nginx"} {
		if _, err := exec.LookPath(program); err != nil && os.Getenv("CI") != "true" {
			t.Run("three gateways", func(t *testing.T) { t.Skipf("%s is not installed", program) })
			return wards
		}
	}
	defer func(was string) { replicasStore = was }(replicasStore)
	replicasStore = "redis"
	return append(wards, k.openWard(t, "three", clinicians))
}

// befall triggers each user's event in Keycloak.
func (k *keycloakServer) befall(t *testing.T, w *wardGateways, clinicians string) {
	t.Helper()
	user := func(fate string) string { return "/users/" + w.people[fate].id }
	k.realm(t, http.MethodPut, user("repassworded")+"/reset-password", map[string]any{"type": "password", "value": "another-one"})
	k.realm(t, http.MethodPut, user("disabled"), map[string]any{"enabled": false})
	k.realm(t, http.MethodPut, user("introspected"), map[string]any{"enabled": false})
	k.realm(t, http.MethodDelete, user("deleted"), nil)
	k.realm(t, http.MethodDelete, user("ungrouped")+"/groups/"+clinicians, nil)
}

// signOut ends all sessions of a user in each ward. Keycloak invalidates older offline tokens with a resolution of one second,
// so a token issued in the same second remains valid. Therefore, the sign-out is repeated.
func (k *keycloakServer) signOut(t *testing.T, wards []*wardGateways) {
	t.Helper()
	for start := time.Now(); time.Since(start) < 3*time.Second; {
		for _, w := range wards {
			k.realm(t, http.MethodPost, "/users/"+w.people["signedout"].id+"/logout", nil)
		}
	}
}

// Users who may no longer sign in at Keycloak lose their access at the gateway at the next refresh or revalidation, with one
// gateway and with three.
func TestKeycloakPeople(t *testing.T) {
	k := emptyHospital(t)
	clinicians := k.realm(t, http.MethodPost, "/groups", map[string]any{"name": "clinicians"})
	wards := k.openWards(t, clinicians)
	for _, w := range wards {
		k.befall(t, w, clinicians)
	}
	k.signOut(t, wards)
	each := func(t *testing.T, test func(*wardGateways, *testing.T)) {
		t.Helper()
		for _, w := range wards {
			t.Run(w.name, func(t *testing.T) { test(w, t) })
		}
	}
	t.Run("refresh within 10 s", func(t *testing.T) { each(t, (*wardGateways).refreshEnds) })
	t.Run("FHIR requests within the interval", func(t *testing.T) { each(t, (*wardGateways).readingEnds) })
	t.Run("Keycloak is down and back", func(t *testing.T) {
		k.process.stop()
		each(t, func(w *wardGateways, t *testing.T) {
			if p := w.people["stays"]; p.refresh(t, &p.offline) != nil {
				t.Error("ended by an outage")
			}
		})
		k.start(t)
		each(t, (*wardGateways).outageIsOver)
	})
	t.Run("Keycloak has another host name and is repaired", func(t *testing.T) {
		k.process.stop()
		k.public = "https://elsewhere.hospital.example"
		k.start(t)
		each(t, (*wardGateways).isSuspended)
		k.process.stop()
		k.public = k.address
		k.start(t)
		each(t, (*wardGateways).mistakeIsOver)
	})
}

// isSuspended checks that requests get 503, and that nothing is revoked, while Keycloak denies everyone.
func (w *wardGateways) isSuspended(t *testing.T) {
	for fate, p := range w.people {
		if !keepsAccess(fate) {
			continue
		}
		for kind, token := range map[string]**oauth2.Token{"offline": &p.offline, "online": &p.online} {
			p.eventually(t, fate+", "+kind, 90*time.Second, func() bool {
				refused, ok := errors.AsType[*oauth2.RetrieveError](p.refresh(t, token))
				return ok && refused.Response.StatusCode == http.StatusServiceUnavailable && p.reads(t, *token) == http.StatusServiceUnavailable
			})
		}
	}
}

// mistakeIsOver checks that nothing was revoked while Keycloak denied everyone by mistake.
func (w *wardGateways) mistakeIsOver(t *testing.T) {
	for fate, p := range w.people {
		if !keepsAccess(fate) {
			continue
		}
		for kind, token := range map[string]**oauth2.Token{"offline": &p.offline, "online": &p.online} {
			p.eventually(t, fate+", "+kind, 90*time.Second, func() bool { return p.refresh(t, token) == nil && p.reads(t, *token) == http.StatusOK })
		}
	}
	w.outageIsOver(t)
}

func (w *wardGateways) refreshEnds(t *testing.T) {
	for fate, p := range w.people {
		for kind, token := range map[string]**oauth2.Token{"offline": &p.offline, "online": &p.online} {
			if !keepsAccess(fate) {
				p.eventually(t, fate+", "+kind, 15*time.Second, func() bool { return p.refresh(t, token) != nil })
			} else if err := p.refresh(t, token); err != nil {
				t.Errorf("%s, %s: %v", fate, kind, err)
			}
		}
	}
}

func (w *wardGateways) readingEnds(t *testing.T) {
	for fate, p := range w.people {
		if !keepsAccess(fate) {
			p.eventually(t, fate, 90*time.Second, func() bool {
				return p.reads(t, p.online) == http.StatusUnauthorized && p.reads(t, p.offline) == http.StatusUnauthorized
			})
		} else if got := p.reads(t, p.online); got != http.StatusOK {
			t.Errorf("%s: %d", fate, got)
		}
	}
}

// outageIsOver checks that nothing was revoked during Keycloak's outage.
func (w *wardGateways) outageIsOver(t *testing.T) {
	p := w.people["stays"]
	if err := p.refresh(t, &p.offline); err != nil {
		t.Errorf("offline: %v", err)
	}
	if err := p.refresh(t, &p.online); err != nil {
		t.Errorf("online: %v", err)
	}
	if end := p.get(t, p.app.AuthCodeURL("again", withIDP("hospital-"+w.name))).location(t); !end.Query().Has("code") {
		t.Errorf("sent to %s, want a code", end)
	}
}

// eventually waits until so returns true. It fails the test after bound.
func (h *keycloakUser) eventually(t *testing.T, what string, bound time.Duration, so func() bool) {
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
