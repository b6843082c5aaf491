package relyingparty_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

func TestCheckIssuer(t *testing.T) {
	t.Parallel()
	tests := map[string]bool{
		"https://login.example":               true,
		"https://login.example:8443/realms/a": true,
		"https://login.example/":              true,
		"http://localhost:8080":               true,
		"http://127.0.0.1:8080/realms/a":      true,
		"http://127.8.9.10":                   true,
		"http://[::1]:8080":                   true,
		"http://login.example":                false,
		"http://10.0.0.1":                     false,
		"http://localhost.attacker.example":   false,
		"http://127.0.0.1.attacker.example":   false,
		"ftp://login.example":                 false,
		"login.example":                       false,
		"https://":                            false,
		"https:login.example":                 false,
		"https://user@login.example":          false,
		"https://login.example?a=b":           false,
		"https://login.example?":              false,
		"https://login.example#a":             false,
		"https://login.example#":              false,
		"https://login.example/\n":            false,

		"https://login.example/.well-known/openid-configuration": false,
		"": false,
	}
	for issuer, ok := range tests {
		if err := relyingparty.CheckIssuer(issuer); (err == nil) != ok {
			t.Errorf("%q: %v", issuer, err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*relyingparty.Config){
		"issuer":       func(c *relyingparty.Config) { c.Issuer = "http://login.example" },
		"client":       func(c *relyingparty.Config) { c.ClientID = "" },
		"redirect URI": func(c *relyingparty.Config) { c.RedirectURI = "/oauth2/callback/x" },
		"tenants":      func(c *relyingparty.Config) { c.MultiTenant = true },
	} {
		c := relyingparty.Config{Issuer: "https://login.example", ClientID: "c", RedirectURI: redirectURI}
		if _, err := relyingparty.New(c); err != nil {
			t.Fatal(err)
		}
		change(&c)
		if _, err := relyingparty.New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestMetadataRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]map[string]any{
		"another issuer":               {"issuer": "https://login.attacker.example"},
		"issuer with a slash":          {"issuer": nil},
		"no jwks_uri":                  {"jwks_uri": nil},
		"no token endpoint":            {"token_endpoint": nil},
		"no authorization endpoint":    {"authorization_endpoint": nil},
		"plain token endpoint":         {"token_endpoint": "http://login.example/token"},
		"plain jwks_uri":               {"jwks_uri": "http://login.example/keys"},
		"plain authorization endpoint": {"authorization_endpoint": "http://login.example/authorize"},
		"plain userinfo":               {"userinfo_endpoint": "http://login.example/userinfo"},
		"script to end the session":    {"end_session_endpoint": "javascript:alert(1)"},
		"credentials in an endpoint":   {"token_endpoint": "https://login.example@attacker.example/"},
		"relative endpoint":            {"token_endpoint": "/token"},
		"symmetric algorithms alone":   {"id_token_signing_alg_values_supported": []string{"HS256", "none"}},
		"client authentication":        {"token_endpoint_auth_methods_supported": []string{"private_key_jwt"}},
	}
	for name, metadata := range tests {
		t.Run(name, func(t *testing.T) {
			idp := providertest.Start(t)
			idp.Change(func(s *providertest.Settings) {
				if s.Metadata = metadata; strings.Contains(name, "slash") {
					s.Metadata["issuer"] = idp.Issuer + "/"
				}
			})
			checkFault(t, failedSignIn(t, idp, 0), "", relyingparty.ErrMetadata)
		})
	}
}

// If the issuer uses https, its endpoints must use https, even on loopback.
func TestMetadataKeepsHTTPS(t *testing.T) {
	t.Parallel()
	idp := providertest.StartTLS(t)
	idp.Change(func(s *providertest.Settings) { s.Metadata["token_endpoint"] = "http://127.0.0.1/token" })
	checkFault(t, failedSignIn(t, idp, 0), "", relyingparty.ErrMetadata)
}

// The code is sent once, with the authentication method from discovery.
func TestClientAuthentication(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, secret string
		methods      any
		basic        bool
	}{
		{"methods not listed", providertest.ClientSecret, nil, true},
		{"both", providertest.ClientSecret, []string{"client_secret_post", "client_secret_basic"}, true},
		{"post", providertest.ClientSecret, []string{"private_key_jwt", "client_secret_post"}, false},
		{"public", "", []string{"client_secret_basic", "none"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			idp := providertest.Start(t, func(s *providertest.Settings) {
				s.ClientSecret = tt.secret
				s.Metadata["token_endpoint_auth_methods_supported"] = tt.methods
			})
			p := newProvider(t, idp, func(c *relyingparty.Config) { c.ClientSecret = tt.secret })
			if _, err := signIn(t, p, idp, newRequest()); err != nil {
				t.Error(err)
			}
			sent := idp.Requests(providertest.Token)
			if len(sent) != 1 || (sent[0].Header.Get("Authorization") != "") != tt.basic {
				t.Fatalf("%d requests, Authorization %t", len(sent), tt.basic)
			}
			if got := sent[0].Form.Get("code_verifier"); got != newRequest().Verifier {
				t.Errorf("code_verifier %q", got)
			}
		})
	}
}

// If client authentication fails, it is not retried with another method, because the code would be sent twice.
func TestCodeSentOnce(t *testing.T) {
	t.Parallel()
	idp := providertest.Start(t)
	p := newProvider(t, idp, func(c *relyingparty.Config) { c.ClientSecret = "wrong" })
	_, err := signIn(t, p, idp, newRequest())
	checkFault(t, err, "General Hospital Error - 401 error getting token", nil)
	if n := count(idp, providertest.Token); n != 1 {
		t.Errorf("sent %d times", n)
	}
}

// Two people who sign in concurrently at a provider never get each other's identity. All sign-ins share one discovery request
// and one key request.
func TestParallelSignIns(t *testing.T) {
	t.Parallel()
	idp := providertest.Start(t, func(s *providertest.Settings) {
		s.People = []providertest.Person{
			{Subject: "alice", Claims: map[string]any{"name": "Alice"}},
			{Subject: "bob", Claims: map[string]any{"name": "Bob"}},
		}
	})
	p := newProvider(t, idp, nil)
	var all sync.WaitGroup
	for i := range 20 {
		subject, name := "alice", "Alice"
		if i%2 == 1 {
			subject, name = "bob", "Bob"
		}
		all.Go(func() {
			r := newRequest()
			r.State, r.Nonce, r.LoginHint = fmt.Sprint("s", i), fmt.Sprint("n", i), subject
			r.Verifier = strings.Repeat("v", 43+i)
			identity, err := signIn(t, p, idp, r)
			if err != nil || identity.Subject != subject || identity.Claims["name"] != name {
				t.Errorf("%s got %v, %v", subject, identity, err)
			}
		})
	}
	all.Wait()
	if d, k := count(idp, providertest.Discovery), count(idp, providertest.Keys); d != 1 || k != 1 {
		t.Errorf("%d discoveries, %d key sets", d, k)
	}
}

// Sign-in works with a key that the provider has just published (OpenID Connect Core §10.1.1), even if the keys were just
// fetched.
func TestRotationBetweenSignIns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		idp := providertest.New(issuer)
		p := newProvider(t, idp, func(c *relyingparty.Config) { c.Transport = handlerTransport{idp} })
		for _, kid := range []string{"key-1", "key-2", "key-3"} {
			idp.Change(func(s *providertest.Settings) { s.KeyID = kid })
			if _, err := signIn(t, p, idp, newRequest()); err != nil {
				t.Errorf("%s: %v", kid, err)
			}
			time.Sleep(time.Second)
		}
		idp.Change(func(s *providertest.Settings) { s.IDToken = providertest.UnknownKey })
		for range 100 {
			if _, err := signIn(t, p, idp, newRequest()); !errors.Is(err, relyingparty.ErrUnknownKey) {
				t.Fatal(err)
			}
		}
		if n := count(idp, providertest.Keys); n != 4 {
			t.Errorf("%d requests for keys", n)
		}
	})
}

// The code and the response of one sign-in cannot be used for another.
func TestSignInsBound(t *testing.T) {
	t.Parallel()
	idp := providertest.Start(t)
	p, mine, theirs := newProvider(t, idp, nil), newRequest(), newRequest()
	theirs.Nonce = "another"
	_, err := p.Exchange(t.Context(), providerResponse(t, p, idp, theirs), mine)
	checkFault(t, err, "", relyingparty.ErrIDToken)
	theirs.Verifier = strings.Repeat("x", 43)
	_, err = p.Exchange(t.Context(), providerResponse(t, p, idp, theirs), mine)
	checkFault(t, err, "General Hospital Error - 400 error getting token", nil)
}

func Example() {
	p, err := relyingparty.New(relyingparty.Config{
		Issuer: "https://login.hospital.example", ClientID: "fhir", ClientSecret: "secret",
		RedirectURI: "https://fhir.example.org/oauth2/callback/hospital",
	})
	if err != nil {
		panic(err)
	}
	request := relyingparty.AuthenticationRequest{State: "…", Nonce: "…", Verifier: "…"}
	address, err := p.AuthenticationURL(context.Background(), request)
	fmt.Println(address == "", err)
	// Output: true authentication request: the PKCE verifier must have 43 to 128 characters
}
