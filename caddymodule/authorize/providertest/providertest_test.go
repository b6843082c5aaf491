package providertest_test

import (
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
)

// Connections to a black hole are neither accepted nor rejected: the kernel drops the SYNs.
func TestBlackHole(t *testing.T) {
	t.Parallel()
	address := providertest.BlackHole(t)
	for range 3 {
		conn, err := net.DialTimeout("tcp", address, 50*time.Millisecond)
		if err == nil {
			conn.Close()
			t.Fatal("connected")
		}
		if !os.IsTimeout(err) {
			t.Fatal(err)
		}
	}
}

// post sends a code to the token endpoint and returns the HTTP status.
func post(t *testing.T, p *providertest.Provider, code string, change url.Values) int {
	t.Helper()
	form := url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {"https://a.example/cb"},
		"client_id": {providertest.ClientID}, "client_secret": {providertest.ClientSecret},
	}
	maps.Copy(form, change)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.Issuer+"/token", strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := p.Transport().RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode
}

// The token endpoint rejects invalid requests. With a permissive provider, tests would prove nothing.
func TestTokenEndpointIsStrict(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	code := func() string {
		return p.Authorize(t, p.Issuer+"/authorize?response_type=code&scope=openid&client_id=client&redirect_uri=https://a.example/cb&nonce=n").Get("code")
	}
	tests := []struct {
		name   string
		change url.Values
		want   int
	}{
		{"right", nil, 200},
		{"wrong secret", url.Values{"client_secret": {"x"}}, 401},
		{"wrong code", url.Values{"code": {"x"}}, 400},
		{"wrong redirect URI", url.Values{"redirect_uri": {"https://a.example/other"}}, 400},
		{"verifier where no challenge was", url.Values{"code_verifier": {strings.Repeat("x", 43)}}, 400},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := post(t, p, code(), tt.change); got != tt.want {
				t.Errorf("%d, want %d", got, tt.want)
			}
		})
	}
	once := code()
	if first, second := post(t, p, once, nil), post(t, p, once, nil); first != 200 || second != 400 {
		t.Errorf("a code twice: %d, %d", first, second)
	}
	if n := len(p.Requests(providertest.Token)); n != len(tests)+2 {
		t.Errorf("%d requests counted", n)
	}
}
