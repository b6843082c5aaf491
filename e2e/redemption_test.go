package e2e

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"golang.org/x/oauth2"
)

// If many clients redeem one code concurrently, exactly one of them succeeds. Because the code was used more than once, the
// tokens of the successful client are then revoked (RFC 6749 §4.1.2).
func TestSimultaneousRedemptions(t *testing.T) {
	const redeemers = 50
	app, verifier := example.demoApp(t, "openid", "user/*.rs"), oauth2.GenerateVerifier()
	end := example.newPerson(t).signIn(t, app.AuthCodeURL("state", oauth2.S256ChallengeOption(verifier)))
	form := url.Values{
		"grant_type": {"authorization_code"}, "code": {end.Query().Get("code")}, "client_id": {"demo-app"},
		"redirect_uri": {app.RedirectURL}, "code_verifier": {verifier},
	}
	requests := make([]*http.Request, redeemers)
	for i := range requests {
		requests[i] = newRequest(t, http.MethodPost, example.issuer+"/oauth2/token", form.Encode())
		requests[i].Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	answers, errs := make([]httpResponse, redeemers), make([]error, redeemers)
	var started, finished sync.WaitGroup
	started.Add(redeemers)
	for i, r := range requests {
		finished.Go(func() {
			started.Done()
			started.Wait() // send all requests simultaneously
			answers[i], errs[i] = trySend(example.client, r)
		})
	}
	finished.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}

	var winner string
	for _, a := range answers {
		var got struct {
			AccessToken string `json:"access_token"`
			Error       string
		}
		a.decode(t, &got)
		switch {
		case a.status == http.StatusOK && winner == "":
			winner = got.AccessToken
		case a.status == http.StatusOK:
			t.Error("a second redemption succeeded")
		case a.status != http.StatusBadRequest || got.Error != "invalid_grant":
			t.Errorf("status %d, error %q, want 400 invalid_grant", a.status, got.Error)
		}
	}
	if winner == "" {
		t.Fatal("no redemption succeeded")
	}
	refused := example.expand(t, winner, gender).is(t, http.StatusUnauthorized)
	if challenge := refused.header.Get("WWW-Authenticate"); !strings.Contains(challenge, "invalid_token") {
		t.Errorf("WWW-Authenticate %q", challenge)
	}
}
