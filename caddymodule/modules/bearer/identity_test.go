package bearer

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

// holderOfTokens returns the same holder and error for each token.
type holderOfTokens struct {
	holder *tokenclaim.Holder
	err    error
}

func (h holderOfTokens) Holder(context.Context, tokenclaim.AccessToken) (*tokenclaim.Holder, error) {
	return h.holder, h.err
}

// A token of the fhir app has the fhirUser and groups that its holder has now. It is refused once the holder is gone, and
// while that cannot be found out.
func TestTokenHasItsHolder(t *testing.T) {
	t.Parallel()
	nurses := tokenclaim.Attributes{IDP: "hospital", Groups: []string{"nurses"}}
	for _, tt := range []struct {
		name     string
		holders  holderOfTokens
		policies bool
		status   int // of the refusal; 0: none
		fhirUser string
		groups   []string
	}{
		{"unchanged", holderOfTokens{&tokenclaim.Holder{FHIRUser: "Practitioner/1", Attributes: nurses}, nil}, false, 0, "Practitioner/1", nil},
		{"unchanged, with policies", holderOfTokens{&tokenclaim.Holder{FHIRUser: "Practitioner/1", Attributes: nurses}, nil}, true, 0, "Practitioner/1", nurses.Groups},
		{"another fhirUser", holderOfTokens{&tokenclaim.Holder{FHIRUser: "Practitioner/2", Attributes: nurses}, nil}, false, 0, "Practitioner/2", nurses.Groups},
		{"no fhirUser any more", holderOfTokens{&tokenclaim.Holder{}, nil}, false, 0, "", nil},
		{"gone", holderOfTokens{}, false, http.StatusUnauthorized, "", nil},
		{"the store fails", holderOfTokens{nil, errors.New("broken")}, false, http.StatusServiceUnavailable, "", nil},
		{"the store fails after a cached holder", holderOfTokens{&tokenclaim.Holder{FHIRUser: "Practitioner/1"}, errors.New("broken")}, false, http.StatusServiceUnavailable, "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := authenticator{holders: tt.holders, hasPolicies: tt.policies}
			verified := guard.Token{Subject: "alice", FHIRUser: "Practitioner/1"}
			got, err := a.complete(t.Context(), &verified)
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

// withReplacer returns a request as Caddy passes it to handlers, with placeholders.
func withReplacer(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), caddy.ReplacerCtxKey, caddy.NewReplacer()))
}

// A request without a valid token has no identity, whatever an earlier handler said.
func TestIdentityWithoutToken(t *testing.T) {
	t.Parallel()
	r := withReplacer(httptest.NewRequest(http.MethodGet, "/fhir/R4/Patient", nil))
	replacer, _ := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	replacer.Set("http.auth.user.id", "mallory")
	if _, err := (&authenticator{at: address{path: "/fhir/R4"}}).authenticate(r); !errors.Is(err, guard.ErrNoToken) {
		t.Error(err)
	}
	if id, _ := replacer.GetString("http.auth.user.id"); id != "" {
		t.Errorf("id %q", id)
	}
}
