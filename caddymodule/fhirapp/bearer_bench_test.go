package fhirapp

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// BenchmarkBearer compares a cached $expand, with and without the guard, to Caddy's respond with the same number of bytes. The
// token is in the guard's cache. With scopes off, only the token is verified. "Next" is the same response from another handler.
func BenchmarkBearer(b *testing.B) {
	issuer := newTrustedIssuer(b)
	site := func(routes string) *gateway {
		return newGateway(b, "{\n\tadmin off\n\tauto_https off\n}\n\nhttp://localhost:8443 {\n\troute {\n"+routes+"\n\t}\n}\n")
	}
	const path = "/fhir/R4/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/languages&count=12"
	guard := "\t\tfhir_bearer {\n\t\t\ttrust " + issuer.url + " fhir\n\t\t}\n"
	open := site("\t\tfhir_expand")
	answer, err := io.ReadAll(open.Get(path, "").Body)
	if err != nil {
		b.Fatal(err)
	}
	respond := "\t\theader Content-Type application/fhir+json\n\t\trespond `" + string(answer) + "`"
	for _, bench := range []struct {
		name   string
		server http.Handler
	}{
		{"respond", site(respond).Server},
		{"open", open.Server},
		{"guarded", site(guard + "\t\tfhir_expand").Server},
		{"guarded, scopes off", site(strings.Replace(guard, "{", "{\n\t\t\tscopes off", 1) + "\t\tfhir_expand").Server},
		{"guarded, next", site(guard + respond).Server},
	} {
		b.Run(bench.name, func(b *testing.B) {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.Host = "localhost:8443"
			header := http.Header{
				"Authorization": {"Bearer " + issuer.Token(b, "system/*.rs")}, "User-Agent": {"an app"}, "Accept-Encoding": {"gzip"},
			}
			b.ReportAllocs()
			for b.Loop() {
				request := r.Clone(r.Context())
				maps.Copy(request.Header, header)
				w := &discardWriter{header: make(http.Header)}
				bench.server.ServeHTTP(w, request)
				if w.status != http.StatusOK {
					b.Fatal(w.status)
				}
			}
		})
	}
}

// trustedIssuer is another issuer. Its tokens have the audience fhir.
type trustedIssuer struct {
	url string
	key *ecdsa.PrivateKey
}

func newTrustedIssuer(t testing.TB) *trustedIssuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i := &trustedIssuer{key: key}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var document any = map[string]string{"issuer": i.url, "jwks_uri": i.url + "/jwks"}
		if r.URL.Path == "/jwks" {
			document = jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: "k", Algorithm: "ES256", Use: "sig"}}}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(document)
	}))
	t.Cleanup(server.Close)
	i.url = server.URL
	return i
}

// Token returns an access token of a practitioner with a patient in the launch context.
func (i *trustedIssuer) Token(t testing.TB, scope string) string {
	t.Helper()
	key := jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: i.key, KeyID: "k"}}
	signer, err := jose.NewSigner(key, (&jose.SignerOptions{}).WithType("at+jwt"))
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(map[string]any{
		"iss": i.url, "sub": "1", "aud": "fhir", "client_id": "app", "jti": scope, "scope": scope, "patient": "1",
		"fhirUser": "Practitioner/1", "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	}).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// BenchmarkRead measures a read of a 2 KB resource with a cached token. A handler replaces the FHIR server.
func BenchmarkRead(b *testing.B) {
	issuer := newTrustedIssuer(b)
	patient := "{\"resourceType\":\"Patient\",\"id\":\"1\",\"text\":{\"status\":\"generated\",\"div\":\"" + strings.Repeat("Narrative of the record. ", 75) + "\"}}"
	site := func(guard string) string {
		return "{\n\tadmin off\n\tauto_https off\n}\n\nhttp://localhost:8443 {\n\troute {\n" + guard + "\t\theader Content-Type application/fhir+json\n\t\trespond `" + patient + "`\n\t}\n}\n"
	}
	guarded := newGateway(b, site("\t\tfhir_bearer {\n\t\t\ttrust "+issuer.url+" fhir\n\t\t}\n"))
	open := newGateway(b, site(""))
	for _, bench := range []struct {
		name   string
		server http.Handler
		token  string
	}{
		{"open", open.Server, ""},
		{"open with a token", open.Server, issuer.Token(b, "user/*.rs")},
		{"user", guarded.Server, issuer.Token(b, "user/*.rs")},
		{"patient", guarded.Server, issuer.Token(b, "patient/*.rs")},
	} {
		b.Run(bench.name, func(b *testing.B) {
			r := httptest.NewRequest(http.MethodGet, "/fhir/R4/Patient/1", nil)
			r.Host = "localhost:8443"
			b.ReportAllocs()
			for b.Loop() {
				request := r.Clone(r.Context())
				request.Header = http.Header{"User-Agent": {"an app"}, "Accept-Encoding": {"gzip"}}
				if bench.token != "" {
					request.Header["Authorization"] = []string{"Bearer " + bench.token}
				}
				w := httptest.NewRecorder()
				bench.server.ServeHTTP(w, request)
				if w.Code != http.StatusOK {
					b.Fatal(w.Code, w.Body)
				}
			}
		})
	}
}
