package e2e

import (
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/oauth2"
)

// runOnOneAndThree runs a test with one gateway, and with three on Redis; with REPLICAS, only with three.
func runOnOneAndThree(t *testing.T, test func(t *testing.T, name string)) {
	t.Helper()
	t.Run("one", func(t *testing.T) { test(t, "one") })
	if replicasStore == "" {
		runOnThree(t, test)
	}
}

// runOnThree runs a test with three gateways on Redis.
func runOnThree(t *testing.T, test func(t *testing.T, name string)) {
	t.Helper()
	t.Run("three", func(t *testing.T) {
		for _, program := range []string{"redis-server", "nginx"} {
			if _, err := exec.LookPath(program); err != nil && os.Getenv("CI") != "true" {
				t.Skipf("%s is not installed", program)
			}
		}
		defer func(before string) { replicasStore = before }(replicasStore)
		replicasStore = "redis"
		test(t, "three")
	})
}

// On a shared workstation, the next nurse signs in at Keycloak with her own account although the previous nurse is signed in.
// Otherwise, she could not enter her user name, and her password would count as the previous nurse's failed attempt.
func TestKeycloakNextNurse(t *testing.T) {
	k := emptyHospital(t)
	for _, name := range []string{"dora", "nora"} {
		k.addUser(t, name)
	}
	runOnOneAndThree(t, func(t *testing.T, name string) {
		address := mustFreeAddress(t)
		var idps []string
		for idp, option := range map[string]string{"asks-" + name: "", "knows-" + name: "keep_upstream_token"} {
			k.addClient(t, "https://"+address, idp, nil)
			idps = append(idps, idpBlock(idp, k.issuer(), idp, "secret-of-caddy-fhir", option))
		}
		g := federatedGateway(t, "gateway-keycloak-next-"+name, address, idps)
		for _, idp := range []string{"asks-" + name, "knows-" + name} {
			for way, parameters := range map[string]url.Values{
				"prompt=select_account":         {"prompt": {"select_account"}},
				"prompt=login for another":      {"prompt": {"login"}, "login_hint": {"nora"}},
				"max_age=0 for another":         {"max_age": {"0"}, "login_hint": {"nora"}},
				"select_account by an old hint": {"prompt": {"select_account"}, "login_hint": {"dora"}},
			} {
				t.Run(idp+", "+way, func(t *testing.T) {
					computer := g.newPerson(t)
					computer.signInBy(t, idp, keycloakForm("dora"))
					typed := keycloakForm("nora")
					typed.Set("decision", "other")
					next := g.federated(t, idp, func(start string) *url.URL {
						return computer.walk(t, start+"&"+parameters.Encode(), appCallback, typed)
					})
					if next.userInfo.PreferredUsername != "nora" {
						t.Errorf("signed in as %+v", next.userInfo)
					}
					app := g.demoApp(t, "openid")
					if end := computer.walk(t, app.AuthCodeURL("silent", withIDP(idp), oauth2.SetAuthURLParam("prompt", "none")), appCallback, nil); !end.Query().Has("code") {
						t.Errorf("nora has no session: %s", end)
					}
				})
			}
		}
	})
}

// If Keycloak issues no refresh tokens, users who are signed in at Keycloak stay signed in to the gateway after their access
// token has expired. They see no page. Users who have signed out at Keycloak are signed out of the gateway.
func TestKeycloakRenewal(t *testing.T) {
	k := emptyHospital(t)
	dora := k.addUser(t, "dora")
	runOnOneAndThree(t, func(t *testing.T, name string) {
		address, idp := mustFreeAddress(t), "brief-"+name
		k.addClient(t, "https://"+address, idp, map[string]string{
			"use.refresh.tokens": "false", "access.token.lifespan": "70", // ten seconds more than the accepted clock skew
			"backchannel.logout.url": "",
		})
		g := federatedGateway(t, "gateway-keycloak-renewal-"+name, address, []string{idpBlock(idp, k.issuer(), idp, "secret-of-caddy-fhir")})
		nurse := &keycloakUser{person: g.newPerson(t)}
		token := nurse.signInBy(t, idp, keycloakForm("dora")).token
		silent := g.demoApp(t, "openid").AuthCodeURL("silent", withIDP(idp), oauth2.SetAuthURLParam("prompt", "none"))
		renewed := func() (end *url.URL) { // returns the URL at the app, after a redirect to Keycloak
			nurse.eventually(t, "asked", time.Minute, func() bool {
				end = nurse.walk(t, silent, "", nil)
				return strings.HasPrefix(end.String(), k.address)
			})
			return nurse.walk(t, end.String(), appCallback, nil)
		}
		if end := renewed(); !end.Query().Has("code") || nurse.reads(t, token) != http.StatusOK {
			t.Errorf("signed in at Keycloak: %s", end)
		}
		k.realm(t, http.MethodPost, "/users/"+dora+"/logout", nil)
		if end := renewed(); end.Query().Get("error") != "login_required" {
			t.Errorf("signed out at Keycloak: %s", end)
		}
		nurse.eventually(t, "the access token ends", 10*time.Second, func() bool { return nurse.reads(t, token) == http.StatusUnauthorized })
	})
}

// Keycloak's automatic logoff works although a gateway revalidates users in the background. Inactive users are signed out at
// both. Active users stay signed in. Disabled users who are inactive lose their access tokens within the revalidation interval.
func TestKeycloakIdle(t *testing.T) {
	k := emptyHospital(t)
	k.realm(t, http.MethodPut, "", map[string]any{"ssoSessionIdleTimeout": 120})
	runOnThree(t, func(t *testing.T, name string) {
		address, idp := mustFreeAddress(t), "idle-"+name
		k.addClient(t, "https://"+address, idp, nil)
		g := federatedGateway(t, "gateway-keycloak-idle-"+name, address,
			[]string{idpBlock(idp, k.issuer(), idp, "secret-of-caddy-fhir", "revalidate 1m 8h")}, "scope offline_access", "scope online_access offline_access")
		tokens, people, ids := map[string]*oauth2.Token{}, map[string]*person{}, map[string]string{}
		for _, who := range []string{"idle", "active", "disabled"} {
			ids[who], people[who] = k.addUser(t, who+"-"+name), g.newPerson(t)
			tokens[who] = people[who].signInBy(t, idp, keycloakForm(who+"-"+name)).token
		}
		silent := g.demoApp(t, "openid").AuthCodeURL("silent", withIDP(idp), oauth2.SetAuthURLParam("prompt", "none"))
		visits := func() bool { return people["active"].walk(t, silent, appCallback, nil).Query().Has("code") }
		reads := func(who string) bool { return g.expand(t, tokens[who].AccessToken, gender).status == http.StatusOK }
		k.realm(t, http.MethodPut, "/users/"+ids["disabled"], map[string]any{"enabled": false})
		(&keycloakUser{person: people["disabled"]}).eventually(t, "disabled", 90*time.Second, func() bool { return !reads("disabled") })
		if !visits() || !reads("idle") {
			t.Error("signed out before the timeout")
		}
		(&keycloakUser{person: people["idle"]}).eventually(t, "idle", 6*time.Minute, func() bool {
			if !visits() {
				t.Fatal("who is active was signed out")
			}
			return !reads("idle")
		})
		if end := people["idle"].walk(t, silent, appCallback, nil); end.Query().Get("error") != "login_required" {
			t.Errorf("who was inactive: %s", end)
		}
	})
}
