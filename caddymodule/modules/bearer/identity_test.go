package bearer

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/requester"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

// fixedHolder returns the same holder and error for every token.
type fixedHolder struct {
	holder *tokenclaim.Holder
	err    error
}

func (h fixedHolder) Holder(context.Context, tokenclaim.AccessToken) (*tokenclaim.Holder, error) {
	return h.holder, h.err
}

// A token issued by the fhir app has the current fhirUser and groups of its holder. It is rejected if the holder no longer
// exists or cannot be determined.
func TestTokenHasItsHolder(t *testing.T) {
	t.Parallel()
	nurses := tokenclaim.Attributes{IDP: "hospital", Groups: []string{"nurses"}}
	for _, tt := range []struct {
		name     string
		holders  fixedHolder
		policies bool
		status   int // status of the rejection; 0 if the token is accepted
		fhirUser string
		groups   []string
	}{
		{"unchanged", fixedHolder{&tokenclaim.Holder{FHIRUser: "Practitioner/1", Attributes: nurses}, nil}, false, 0, "Practitioner/1", nil},
		{"unchanged, with policies", fixedHolder{&tokenclaim.Holder{FHIRUser: "Practitioner/1", Attributes: nurses}, nil}, true, 0, "Practitioner/1", nurses.Groups},
		{"another fhirUser", fixedHolder{&tokenclaim.Holder{FHIRUser: "Practitioner/2", Attributes: nurses}, nil}, false, 0, "Practitioner/2", nurses.Groups},
		{"no fhirUser any more", fixedHolder{&tokenclaim.Holder{}, nil}, false, 0, "", nil},
		{"gone", fixedHolder{}, false, http.StatusUnauthorized, "", nil},
		{"the store fails", fixedHolder{nil, errors.New("broken")}, false, http.StatusServiceUnavailable, "", nil},
		{"the store fails after a cached holder", fixedHolder{&tokenclaim.Holder{FHIRUser: "Practitioner/1"}, errors.New("broken")}, false, http.StatusServiceUnavailable, "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := authenticator{holders: tt.holders, hasPolicies: tt.policies}
			verified := guard.Token{Subject: "alice", FHIRUser: "Practitioner/1"}
			got, err := a.resolveHolder(t.Context(), &verified)
			refused, _ := errors.AsType[*guard.Error](err)
			switch {
			case tt.status == 0 && err != nil, tt.status != 0 && (refused == nil || refused.Status != tt.status || got != nil):
				t.Fatalf("%+v, %v", got, err)
			case tt.status == 0 && (got.FHIRUser != tt.fhirUser || !slices.Equal(got.Groups, tt.groups)):
				t.Errorf("fhirUser %q, groups %q", got.FHIRUser, got.Groups)
			}
			if verified.FHIRUser != "Practitioner/1" || verified.Groups != nil {
				t.Errorf("the token that other requests share has become %+v", verified)
			}
		})
	}
}

// withReplacer returns a request with Caddy's replacer in its context.
func withReplacer(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), caddy.ReplacerCtxKey, caddy.NewReplacer()))
}

// A request without a valid token has no identity, even if an earlier handler has set one.
func TestIdentityWithoutToken(t *testing.T) {
	t.Parallel()
	r := withReplacer(httptest.NewRequest(http.MethodGet, "/fhir/R4/Patient", nil))
	replacer, _ := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	replacer.Set("http.auth.user.id", "mallory")
	if _, err := (&authenticator{location: apiLocation{path: "/fhir/R4"}}).authenticate(r); !errors.Is(err, guard.ErrNoToken) {
		t.Error(err)
	}
	if id, _ := replacer.GetString("http.auth.user.id"); id != "" {
		t.Errorf("id %q", id)
	}
}

func TestIdentityIsSetByGuardOnly(t *testing.T) {
	t.Parallel()
	forged := func(string) (any, bool) { return "forged", true }
	for _, tt := range []struct {
		name   string
		before func(*caddy.Replacer)
		token  *guard.Token
		want   string // values of all placeholders, joined
	}{
		{"no earlier identity", func(*caddy.Replacer) {}, identityToken, "1 app user/*.rs 2 Practitioner/1 https://issuer.example"},
		{"no token", func(*caddy.Replacer) {}, nil, "     "},
		{"set before", func(r *caddy.Replacer) {
			for _, name := range requester.IdentityPlaceholders {
				r.Set(name, "forged")
			}
		}, identityToken, "1 app user/*.rs 2 Practitioner/1 https://issuer.example"},
		{"one set before, and no token", func(r *caddy.Replacer) { r.Set("http.auth.user.scope", "forged") }, nil, "     "},
		{"provided before", func(r *caddy.Replacer) { r.Map(forged) }, identityToken, "1 app user/*.rs 2 Practitioner/1 https://issuer.example"},
		{"provided before, and no token", func(r *caddy.Replacer) { r.Map(forged) }, nil, "     "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			repl := caddy.NewReplacer()
			tt.before(repl)
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r = r.WithContext(context.WithValue(r.Context(), caddy.ReplacerCtxKey, repl))
			(&identity{token: &guard.Token{Subject: "earlier", ClientID: "earlier", Scope: "earlier"}}).register(r)
			(&identity{token: tt.token}).register(r)
			all := "{http.auth.user.id} {http.auth.user.client_id} {http.auth.user.scope} {http.auth.user.patient} {http.auth.user.fhir_user} {http.auth.user.issuer}"
			if got := repl.ReplaceAll(all, ""); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

var identityToken = &guard.Token{
	Subject: "1", ClientID: "app", Scope: "user/*.rs", Patient: "2", FHIRUser: "Practitioner/1", Issuer: "https://issuer.example",
}

// Tokens issued to a client without a user, and internal requests, are exempt from the sign-in policy.
func TestSignInPolicyOfApps(t *testing.T) {
	t.Parallel()
	p, at := SignInPolicy{ACR: []string{"mfa"}, MaxAge: caddy.Duration(time.Hour)}, apiLocation{issuer: "https://localhost:8443"}
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
		{"token from before the claim", guard.Token{Issuer: at.issuer, Subject: "alice", ClientID: "c", AuthTime: now}, true},
		{"a person of another issuer, in our words", guard.Token{Issuer: "https://as.example", Subject: "alice", ClientID: "c", ACR: "phr", AuthTime: now}, true},
		{"a person of another issuer", guard.Token{Issuer: "https://as.example", Subject: "alice", ClientID: "c", ACR: "mfa", AuthTime: now}, false},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		if err := p.check(r, &tt.token, at.isLocalToken(&tt.token)); (err != nil) != tt.refused {
			t.Errorf("%s: %v", tt.name, err)
		}
		own := r.WithContext(guard.WithToken(r.Context(), tt.token))
		if err := p.check(own, &tt.token, at.isLocalToken(&tt.token)); err != nil {
			t.Errorf("%s, at the picker: %v", tt.name, err)
		}
	}
}
