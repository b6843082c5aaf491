package bearer

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
)

// TestSignInPolicyOfApps: a client that acts for itself has signed nobody in, and the picker has asked for all that it needs.
func TestSignInPolicyOfApps(t *testing.T) {
	t.Parallel()
	p, at := SignInPolicy{ACR: []string{"mfa"}, MaxAge: caddy.Duration(time.Hour)}, address{issuer: "https://localhost:8443"}
	now, long := time.Now(), time.Now().Add(-2*time.Hour)
	for _, tt := range []struct {
		name    string
		token   guard.Token
		refused bool
	}{
		{"a client", guard.Token{Issuer: at.issuer, Subject: "c", ClientID: "c"}, false},
		{"a client of another issuer", guard.Token{Issuer: "https://as.example", Subject: "c", ClientID: "c"}, true},
		{"a person", guard.Token{Issuer: at.issuer, Subject: "alice", ClientID: "c", ACR: "phr", AuthTime: now}, false},
		{"a person of long ago", guard.Token{Issuer: at.issuer, Subject: "alice", ClientID: "c", ACR: "phr", AuthTime: long}, true},
		{"a person of one factor", guard.Token{Issuer: at.issuer, Subject: "alice", ClientID: "c", ACR: "sfa", AuthTime: now}, true},
		{"a token of before the claim", guard.Token{Issuer: at.issuer, Subject: "alice", ClientID: "c", AuthTime: now}, true},
		{"a person of another issuer, in our words", guard.Token{Issuer: "https://as.example", Subject: "alice", ClientID: "c", ACR: "phr", AuthTime: now}, true},
		{"a person of another issuer", guard.Token{Issuer: "https://as.example", Subject: "alice", ClientID: "c", ACR: "mfa", AuthTime: now}, false},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		if err := p.check(r, &tt.token, at.isOwn(&tt.token)); (err != nil) != tt.refused {
			t.Errorf("%s: %v", tt.name, err)
		}
		own := r.WithContext(guard.WithToken(r.Context(), tt.token))
		if err := p.check(own, &tt.token, at.isOwn(&tt.token)); err != nil {
			t.Errorf("%s, asked by the picker: %v", tt.name, err)
		}
	}
}
