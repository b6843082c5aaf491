package authorize_test

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// The modules of the OpenID Foundation's plan
// oidcc-rp-initiated-logout-certification-test-plan, each by its name: what is
// sent to the end session endpoint after a sign-in, and what must come of it.
func TestRPInitiatedLogoutPlan(t *testing.T) {
	complete := func(id string) url.Values {
		return url.Values{"id_token_hint": {id}, "post_logout_redirect_uri": {afterLogout}, "state": {"a state/+ %"}}
	}
	without := func(names ...string) func(string) url.Values {
		return func(id string) url.Values {
			q := complete(id)
			for _, name := range names {
				q.Del(name)
			}
			return q
		}
	}
	tests := []struct {
		module string
		q      func(idToken string) url.Values
		want   string // an address, or a page: of an error, a question, or the end
	}{
		{"oidcc-rp-initiated-logout", complete, afterLogout + "?state=a+state%2F%2B+%25"},
		{"oidcc-rp-initiated-logout-bad-post-logout-redirect-uri", func(id string) url.Values {
			q := complete(id)
			q.Set("post_logout_redirect_uri", afterLogout+"/bad")
			return q
		}, pageOfError},
		{"oidcc-rp-initiated-logout-query-added-to-post-logout-redirect-uri", func(id string) url.Values {
			q := complete(id)
			q.Set("post_logout_redirect_uri", afterLogout+"?foo=bar")
			return q
		}, pageOfError},
		{"oidcc-rp-initiated-logout-modified-id-token-hint", func(id string) url.Values {
			return complete(unsigned(id))
		}, pageOfError},
		{"oidcc-rp-initiated-logout-bad-id-token-hint", func(id string) url.Values {
			return complete(signedByAnother(t, id))
		}, pageOfError},
		{"oidcc-rp-initiated-logout-no-id-token-hint", without("id_token_hint"), pageOfError},
		{"oidcc-rp-initiated-logout-no-params", without("id_token_hint", "post_logout_redirect_uri", "state"), pageThatAsks},
		{"oidcc-rp-initiated-logout-no-post-logout-redirect-uri", without("post_logout_redirect_uri"), pageAfterwards},
		{"oidcc-rp-initiated-logout-no-state", without("state"), afterLogout},
		{"oidcc-rp-initiated-logout-only-state", without("id_token_hint", "post_logout_redirect_uri"), pageThatAsks},
	}
	for _, tt := range tests {
		t.Run(tt.module, func(t *testing.T) {
			b := newBrowser(t, logoutServer(t))
			r := b.get("/oauth2/logout?" + tt.q(b.tokens(nil).IDToken).Encode())
			got := r.Header.Get("Location")
			if got == "" {
				got = body(t, r)
			}
			if !strings.Contains(got, tt.want) || strings.HasPrefix(tt.want, "https:") && got != tt.want {
				t.Errorf("status %d: %s", r.StatusCode, got)
			}
			stays := tt.want == pageOfError || tt.want == pageThatAsks
			if b.signedIn() != stays || strings.Contains(got, "a state") {
				t.Errorf("signed in: %t", b.signedIn())
			}
		})
	}
	t.Run("oidcc-rp-initiated-logout-discovery-endpoint-verification", func(t *testing.T) {
		document := decode[map[string]any](t, newBrowser(t, logoutServer(t)).get("/.well-known/openid-configuration"))
		if document["end_session_endpoint"] != issuer+"/oauth2/logout" {
			t.Errorf("%v", document["end_session_endpoint"])
		}
	})
}

const (
	pageOfError    = "This link does not work"
	pageThatAsks   = "Sign out?"
	pageAfterwards = "You are signed out"
)

// unsigned is an ID token under the header {"alg":"none"}.
func unsigned(idToken string) string {
	header := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`))
	return header + "." + strings.Split(idToken, ".")[1] + "."
}

// signedByAnother is an ID token with its claims and key id, signed by a key that
// is not ours.
func signedByAnother(t *testing.T, idToken string) string {
	t.Helper()
	token, err := jwt.ParseSigned(idToken, []jose.SignatureAlgorithm{jose.RS256})
	if err != nil {
		t.Fatal(err)
	}
	claims := map[string]any{}
	if err := token.UnsafeClaimsWithoutVerification(&claims); err != nil {
		t.Fatal(err)
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ours := jose.JSONWebKey{Key: key, KeyID: token.Headers[0].KeyID}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: ours}, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		t.Fatal(err)
	}
	forged, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return forged
}

// A session is over once its browser signed out: its cookie, should anybody have
// kept it, leads nowhere.
func TestSessionIsDeadAfterLogout(t *testing.T) {
	b := newBrowser(t, logoutServer(t))
	idToken := b.tokens(nil).IDToken
	kept := b.cookies["__Host-fhir-session"]
	r := b.get("/oauth2/logout?id_token_hint=" + idToken)
	if r.StatusCode != http.StatusOK {
		t.Fatalf("status %d", r.StatusCode)
	}
	b.cookies["__Host-fhir-session"] = kept
	if b.signedIn() {
		t.Error("the cookie still signs in")
	}
}
