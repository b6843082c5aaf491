package upstream_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/upstream"
)

// answerInMemory is answer for a provider without a network.
func answerInMemory(t testing.TB, p *upstream.Provider, idp *authorizetest.Provider, r upstream.AuthenticationRequest) upstream.Callback {
	t.Helper()
	address, err := p.AuthenticationURL(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return callback(visit(t, idp, address))
}

func visit(t testing.TB, idp *authorizetest.Provider, address string) url.Values {
	t.Helper()
	r, err := newGet(t, address)
	if err != nil {
		t.Fatal(err)
	}
	response, err := inMemory{idp}.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	location, err := response.Location()
	if err != nil {
		t.Fatal(err)
	}
	return location.Query()
}

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
			idp := authorizetest.Start(t)
			idp.Change(func(s *authorizetest.Settings) {
				s.Metadata["authorization_response_iss_parameter_supported"] = tt.announced
			})
			p, r := newProvider(t, idp, nil), newRequest()
			c := answer(t, p, idp, r)
			c.Issuer = tt.issuer(idp.Issuer)
			_, err := p.Exchange(t.Context(), c, r)
			if tt.ok != (err == nil) || !tt.ok && !errors.Is(err, upstream.ErrCallback) {
				t.Error(err)
			}
			if sent := count(idp, authorizetest.Token); !tt.ok && sent != 0 {
				t.Errorf("%d codes sent", sent)
			}
		})
	}
}

func TestCallbackDeclined(t *testing.T) {
	t.Parallel()
	idp := authorizetest.Start(t)
	idp.Change(func(s *authorizetest.Settings) { s.AuthorizationError = "access_denied" })
	p, r := newProvider(t, idp, nil), newRequest()
	_, err := signIn(t, p, idp, r)
	var e *upstream.Error
	if !errors.As(err, &e) || e.Kind != upstream.Declined || e.Code != "access_denied" || e.Status != 0 {
		t.Errorf("%#v", err)
	}
	checkFault(t, err, "", nil)

	// Of another provider, not even an error counts.
	_, err = p.Exchange(t.Context(), upstream.Callback{Error: "access_denied", Issuer: "https://login.attacker.example"}, r)
	if errors.As(err, &e) || !errors.Is(err, upstream.ErrCallback) {
		t.Error(err)
	}
	_, err = p.Exchange(t.Context(), upstream.Callback{Error: "a\r\nb", ErrorDescription: strings.Repeat("x", 5000), Issuer: idp.Issuer}, r)
	if !errors.As(err, &e) || e.Code != "" || len(err.Error()) > 500 || strings.ContainsAny(err.Error(), "\r\n") {
		t.Error(err)
	}
	if _, err = p.Exchange(t.Context(), upstream.Callback{Issuer: idp.Issuer}, r); !errors.Is(err, upstream.ErrCallback) {
		t.Error("no code:", err)
	}
}
