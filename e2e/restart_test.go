package e2e

import (
	"net/http"
	"net/url"
	"slices"
	"testing"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// refresh redeems a refresh token with golang.org/x/oauth2.
func (g *gateway) refresh(t *testing.T, app *oauth2.Config, token *oauth2.Token) (*oauth2.Token, error) {
	t.Helper()
	return app.TokenSource(g.context(t), &oauth2.Token{RefreshToken: token.RefreshToken}).Token()
}

// mustRefresh is like refresh, but fails the test on errors.
func (g *gateway) mustRefresh(t *testing.T, app *oauth2.Config, token *oauth2.Token) *oauth2.Token {
	t.Helper()
	next, err := g.refresh(t, app, token)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// offline signs a user in and returns the tokens of an app with offline access.
func (g *gateway) offline(t *testing.T) *oauth2.Token {
	t.Helper()
	return g.userToken(t, "openid", "offline_access", "fhirUser", "user/*.rs")
}

// A third-party client can refresh tokens. Reuse of a stolen refresh token is detected.
func TestRefreshingParty(t *testing.T) {
	app := example.demoApp(t)
	first := example.offline(t)
	second := example.mustRefresh(t, app, first)
	third := example.mustRefresh(t, app, second)
	if second.RefreshToken == first.RefreshToken || third.RefreshToken == second.RefreshToken {
		t.Error("a refresh token was given again")
	}
	checkIDToken(t, example.provider(t), third, "")
	example.expand(t, third.AccessToken, gender).is(t, http.StatusOK)

	_, err := example.refresh(t, app, first)
	wantOAuthError(t, err, "invalid_grant")
	_, err = example.refresh(t, app, third)
	wantOAuthError(t, err, "invalid_grant")
	awaitPropagation()
	example.expand(t, third.AccessToken, gender).is(t, http.StatusUnauthorized)
}

// A gateway that was killed, and therefore could not write anything when it exited, restarts with its state.
func TestKilledGateway(t *testing.T) {
	g := startTestGateway(t, "gateway-killed", fhirServer.address, "\t\tfhir_base", "\t\tlockout 1\n\t\tfhir_base")
	app := g.demoApp(t, "openid")
	kept, revoked, stolen := g.offline(t), g.offline(t), g.offline(t)
	keys := g.keyIDs(t)
	g.revoke(t, revoked.RefreshToken)
	revokedAlone := g.userToken(t, "user/*.rs")
	g.revoke(t, revokedAlone.AccessToken)
	next := g.mustRefresh(t, app, g.mustRefresh(t, app, stolen))
	signedIn := g.newPerson(t)
	signedIn.signIn(t, app.AuthCodeURL("before"))
	for failures := 0; failures < 2; { // throttled attempts are not counted as failures
		if g.mistype(t).status == http.StatusForbidden {
			failures++
		}
	}

	g.killAndStart(t, "gateway-killed-again")

	t.Run("the keys are the same", func(t *testing.T) {
		if again := g.keyIDs(t); !slices.Equal(keys, again) {
			t.Errorf("%q, and %q before", again, keys)
		}
	})
	t.Run("who was signed in still is", func(t *testing.T) {
		if end := signedIn.get(t, app.AuthCodeURL("after")).location(t); !end.Query().Has("code") {
			t.Errorf("sent to %s, want a code", end)
		}
	})
	t.Run("an access token is good", func(t *testing.T) {
		g.expand(t, kept.AccessToken, gender).is(t, http.StatusOK)
	})
	t.Run("a refresh token is good", func(t *testing.T) {
		g.expand(t, g.mustRefresh(t, app, kept).AccessToken, gender).is(t, http.StatusOK)
	})
	t.Run("revoked tokens stay revoked", func(t *testing.T) {
		_, err := g.refresh(t, app, revoked)
		wantOAuthError(t, err, "invalid_grant")
		g.expand(t, revoked.AccessToken, gender).is(t, http.StatusUnauthorized)
		g.expand(t, revokedAlone.AccessToken, gender).is(t, http.StatusUnauthorized)
	})
	t.Run("a used refresh token is known for one", func(t *testing.T) {
		_, err := g.refresh(t, app, stolen)
		wantOAuthError(t, err, "invalid_grant")
		_, err = g.refresh(t, app, next)
		wantOAuthError(t, err, "invalid_grant")
	})
	t.Run("who guessed before waits longer", func(t *testing.T) {
		if g.mistype(t).status == http.StatusTooManyRequests {
			return // the lockout has not expired
		}
		// The first lockout lasts one second.
		if next := g.mistype(t).is(t, http.StatusTooManyRequests); next.header.Get("Retry-After") == "1" {
			t.Error("earlier failures were forgotten")
		}
	})
}

// mistype submits the sign-in page with a wrong password in a new browser.
func (g *gateway) mistype(t *testing.T) httpResponse {
	t.Helper()
	p := g.newPerson(t)
	return p.submit(t, p.openSignIn(t, g.demoApp(t, "openid").AuthCodeURL("state")), "wrong")
}

// revoke revokes a token of the public client (RFC 7009).
func (g *gateway) revoke(t *testing.T, token string) {
	t.Helper()
	form := url.Values{"token": {token}, "client_id": {"demo-app"}}
	r := newRequest(t, http.MethodPost, g.issuer+"/oauth2/revoke", form.Encode())
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	send(t, g.client, r).is(t, http.StatusOK)
}

// keyIDs returns the ids of the published keys.
func (g *gateway) keyIDs(t *testing.T) (ids []string) {
	t.Helper()
	var set struct {
		Keys []struct{ Kid string }
	}
	send(t, g.client, newRequest(t, http.MethodGet, g.issuer+"/.well-known/jwks.json", "")).is(t, http.StatusOK).decode(t, &set)
	for _, key := range set.Keys {
		ids = append(ids, key.Kid)
	}
	slices.Sort(ids)
	return ids
}

// killAndStart kills the gateway with SIGKILL and starts it again with the same files.
func (g *gateway) killAndStart(t *testing.T, name string) {
	t.Helper()
	if g.process.replicas != nil {
		g.killReplicas(t)
		return
	}
	if err := g.process.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-g.process.done
	again, err := startProcess(name, g.environ, caddyBinary, "run", "--config", g.caddyfile, "--adapter", "caddyfile")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(again.stop)
	g.process = again
	g.client.CloseIdleConnections()
	if err := again.ready(g.isReady); err != nil {
		t.Fatal(err)
	}
}

// A code flow works even if the configuration is reloaded before each step.
func TestCodeFlowAcrossReloads(t *testing.T) {
	g := startTestGateway(t, "gateway-reloads", fhirServer.address)
	app, verifier := g.demoApp(t, "openid", "offline_access", "user/*.rs"), oauth2.GenerateVerifier()
	p := g.newPerson(t)
	form := p.openSignIn(t, app.AuthCodeURL("state", oidc.Nonce("a-nonce"), oauth2.S256ChallengeOption(verifier)))
	g.reload(t)
	code := p.submit(t, form, userPassword).location(t).Query().Get("code")
	g.reload(t)
	token, err := app.Exchange(g.context(t), code, oauth2.VerifierOption(verifier))
	if err != nil {
		t.Fatal(err)
	}
	g.reload(t)
	token = g.mustRefresh(t, app, token)
	g.revoke(t, token.RefreshToken)
	g.reload(t)
	g.expand(t, token.AccessToken, gender).is(t, http.StatusUnauthorized)
	_, err = g.refresh(t, app, token)
	wantOAuthError(t, err, "invalid_grant")
}
