package relyingparty_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

// A mix-up: the answer is of another provider than the one that was asked
// (RFC 9207 §1). The code must not be sent anywhere.
func TestCallbackIssuer(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		announced any
		issuer    func(string) string
		ok        bool
	}{
		{"announced, right", true, func(iss string) string { return iss }, true},
		{"announced, missing", true, func(string) string { return "" }, false},
		{"announced, another", true, func(string) string { return "https://login.attacker.example" }, false},
		{"announced, with a slash", true, func(iss string) string { return iss + "/" }, false},
		{"not announced, right", nil, func(iss string) string { return iss }, true},
		{"not announced, missing", nil, func(string) string { return "" }, true},
		{"not announced, another", nil, func(string) string { return "https://login.attacker.example" }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			idp := providertest.Start(t, func(s *providertest.Settings) {
				s.Metadata["authorization_response_iss_parameter_supported"] = tt.announced
			})
			p, r := newProvider(t, idp, nil), newRequest()
			c := answer(t, p, idp, r)
			c.Issuer = tt.issuer(idp.Issuer)
			_, err := p.Exchange(t.Context(), c, r)
			if tt.ok != (err == nil) || !tt.ok && !errors.Is(err, relyingparty.ErrCallback) {
				t.Error(err)
			}
			if sent := count(idp, providertest.Token); !tt.ok && sent != 0 {
				t.Errorf("%d codes sent", sent)
			}
		})
	}
}

func TestCallbackDeclined(t *testing.T) {
	t.Parallel()
	idp := providertest.Start(t, func(s *providertest.Settings) { s.AuthorizationError = "access_denied" })
	p, r := newProvider(t, idp, nil), newRequest()
	_, err := signIn(t, p, idp, r)
	var e *relyingparty.Error
	if !errors.As(err, &e) || e.Kind != relyingparty.Declined || e.Code != "access_denied" || e.Status != 0 {
		t.Errorf("%#v", err)
	}
	checkFault(t, err, "", nil)

	// Of another provider, not even an error counts.
	_, err = p.Exchange(t.Context(), relyingparty.Callback{Error: "access_denied", Issuer: "https://login.attacker.example"}, r)
	if errors.As(err, &e) || !errors.Is(err, relyingparty.ErrCallback) {
		t.Error(err)
	}
	_, err = p.Exchange(t.Context(), relyingparty.Callback{Error: "a\r\nb", ErrorDescription: strings.Repeat("x", 5000), Issuer: idp.Issuer}, r)
	if !errors.As(err, &e) || e.Code != "" || len(err.Error()) > 500 || strings.ContainsAny(err.Error(), "\r\n") {
		t.Error(err)
	}
	if _, err = p.Exchange(t.Context(), relyingparty.Callback{Issuer: idp.Issuer}, r); !errors.Is(err, relyingparty.ErrCallback) {
		t.Error("no code:", err)
	}
}
