package relyingparty_test

import (
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/josetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

func writeKey(t *testing.T, kind string, der []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key.p8")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func pkcs8(t *testing.T, key any) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return writeKey(t, "PRIVATE KEY", der)
}

// Each request contains a JWT. iss is the client_id by default.
func TestAssertionKey(t *testing.T) {
	t.Parallel()
	key := josetest.NewRSA()
	var secrets []string
	idp := providertest.Start(t, func(s *providertest.Settings) {
		s.Metadata["token_endpoint_auth_methods_supported"] = []string{"client_secret_post"}
		s.AcceptsSecret = func(secret string) bool { secrets = append(secrets, secret); return true }
	})
	p := newProvider(t, idp, func(c *relyingparty.Config) {
		c.ClientSecret, c.AssertionKey = "", &relyingparty.AssertionKey{File: pkcs8(t, key), KeyID: "k"}
	})
	identity := mustSignIn(t, p, idp)
	if _, err := p.Refresh(t.Context(), identity.RefreshToken, identity.Subject, func(string) {}); err != nil {
		t.Fatal(err)
	}
	if len(secrets) != 2 {
		t.Fatalf("secrets %q", secrets)
	}
	token, err := jwt.ParseSigned(secrets[1], []jose.SignatureAlgorithm{jose.RS256})
	if err != nil {
		t.Fatal(err)
	}
	var c jwt.Claims
	if err := token.Claims(key.Public(), &c); err != nil || token.Headers[0].KeyID != "k" {
		t.Fatal(err)
	}
	want := jwt.Expected{Issuer: providertest.ClientID, Subject: providertest.ClientID, AnyAudience: jwt.Audience{idp.Issuer}, Time: time.Now()}
	if err := c.ValidateWithLeeway(want, 0); err != nil || c.Expiry.Time().After(time.Now().Add(5*time.Minute)) {
		t.Error(c, err)
	}
}

// The error names the file and what to do.
func TestAssertionKeyRefused(t *testing.T) {
	t.Parallel()
	der, err := x509.MarshalECPrivateKey(josetest.NewEC(elliptic.P256()))
	if err != nil {
		t.Fatal(err)
	}
	text := filepath.Join(t.TempDir(), "key.p8")
	if err := os.WriteFile(text, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		filepath.Join(t.TempDir(), "none"):        "no such file",
		text:                                      "is not a PEM file",
		writeKey(t, "EC PRIVATE KEY", der):        "openssl pkcs8",
		pkcs8(t, josetest.NewEC(elliptic.P384())): "use P-256 or RSA",
	} {
		err := (&relyingparty.AssertionKey{File: file, KeyID: "k"}).Check()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", want, err)
		}
	}
}
