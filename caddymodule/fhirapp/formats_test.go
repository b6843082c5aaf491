package fhirapp

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.etcd.io/bbolt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
)

// given is what a gateway of an earlier format gave to alice and her app before it was stopped; its state is beside it.
type given struct {
	Made           int64             `json:"made"` // Unix time
	Access         string            `json:"access"`
	Refresh        string            `json:"refresh"`
	RevokedAccess  string            `json:"revoked_access"`
	RevokedRefresh string            `json:"revoked_refresh"`
	Cookies        map[string]string `json:"cookies"`
}

// Each earlier format of what gateways store is opened, and what was given goes on as docs/operation.md says. The archives are the
// storage folders of gateways that were built of those commits; their dates are moved to now.
func TestEarlierFormats(t *testing.T) {
	t.Parallel()
	for name, goesOn := range map[string]struct{ access, refresh, session bool }{
		"1-e57edb1": {access: false},
		"2-220b760": {access: false, refresh: true},
		"3-b99b640": {access: true, refresh: true, session: true},
		"4-c2815a7": {access: true, refresh: true, session: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			g := openFormat(t, name, folder)
			// A store of its own: in that of all tests, others have ended what alice had.
			now := newGatewayAt(t, gatewaytest.ExampleAsIs(t, "fhir {", "fhir {\n\t\tstore file {\n\t\t\tpath "+filepath.Join(folder, "codes.db")+"\n\t\t}"), folder)
			app, err := fhirbase.Find[*App](now.Context)
			if err == nil {
				err = app.startStores()
			}
			if err != nil {
				t.Fatal(err)
			}
			status := func(r *http.Response) int { return r.StatusCode }
			if got := status(now.Get("/oauth2/userinfo", redatedToken(t, folder, g, g.Access))); (got == http.StatusOK) != goesOn.access {
				t.Errorf("access token: %d", got)
			}
			if got := status(now.Get("/oauth2/userinfo", redatedToken(t, folder, g, g.RevokedAccess))); got != http.StatusUnauthorized {
				t.Errorf("revoked access token: %d", got)
			}
			if g.RevokedRefresh != "" {
				if got := status(now.Post("/oauth2/token", refreshForm(g.RevokedRefresh))); got != http.StatusBadRequest {
					t.Errorf("revoked refresh token: %d", got)
				}
			}
			if got := status(now.Post("/oauth2/token", refreshForm(g.Refresh))); (got == http.StatusOK) != goesOn.refresh {
				t.Errorf("refresh token: %d", got)
			}
			now.Cookies[browser.SessionCookie] = g.Cookies[browser.SessionCookie]
			location := now.Get("/oauth2/authorize?"+gatewaytest.DemoRequest().Encode(), "").Header.Get("Location")
			if at, err := url.Parse(location); err != nil || at.Query().Has("code") != goesOn.session {
				t.Errorf("session: %s, %v", location, err)
			}
		})
	}
}

// openFormat unpacks an archive, and moves its dates to now.
func openFormat(t *testing.T, name, folder string) (g given) {
	t.Helper()
	packed, err := os.Open(filepath.Join("testdata", "formats", name+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	unzipped, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	archive, err := io.ReadAll(unzipped)
	if err != nil {
		t.Fatal(err)
	}
	unpackFiles(t, tar.NewReader(bytes.NewReader(archive)), folder)
	text, err := os.ReadFile(filepath.Join(folder, "fhir", "given.json"))
	if err := errors.Join(err, json.Unmarshal(text, &g)); err != nil {
		t.Fatal(err)
	}
	by := time.Since(time.Unix(g.Made, 0))
	keys, err := filepath.Glob(filepath.Join(folder, "fhir", "keys", "*.json"))
	if err != nil || len(keys) == 0 {
		t.Fatal("no keys", err)
	}
	for _, path := range keys {
		text, err := os.ReadFile(path)
		if err := errors.Join(err, os.WriteFile(path, redated(text, by), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	redateStore(t, filepath.Join(folder, "fhir", "localhost-8443.db"), by)
	return g
}

var date = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// redated moves the dates in a text.
func redated(text []byte, by time.Duration) []byte {
	return date.ReplaceAllFunc(text, func(at []byte) []byte {
		was, err := time.Parse(time.RFC3339Nano, string(at))
		if err != nil {
			return at
		}
		return []byte(was.Add(by).Format(time.RFC3339Nano))
	})
}

// redateStore moves the dates in a file, if there is one: in entries, whose first 8 bytes are their end, and in the order of ends.
func redateStore(t *testing.T, path string, by time.Duration) {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		return
	}
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	moved := func(end []byte) []byte {
		return binary.BigEndian.AppendUint64(nil, binary.BigEndian.Uint64(end)+uint64(by))
	}
	if err := db.Update(func(tx *bbolt.Tx) error {
		entries, ends := tx.Bucket([]byte("entries")), tx.Bucket([]byte("expiries"))
		all := map[string][]byte{}
		if err := entries.ForEach(func(k, v []byte) error { all[string(k)] = bytes.Clone(v); return nil }); err != nil {
			return err
		}
		for key, value := range all {
			end := moved(value[:8])
			if err := errors.Join(
				ends.Delete(append(value[:8:8], key...)), ends.Put(append(bytes.Clone(end), key...), nil),
				entries.Put([]byte(key), append(end, redated(value[8:], by)...)),
			); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// redatedToken is an access token with its dates moved, signed by the key that signed it.
func redatedToken(t *testing.T, folder string, g given, token string) string {
	t.Helper()
	signed, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.ES256, jose.RS256})
	if err != nil {
		t.Fatal(err)
	}
	claims := map[string]any{}
	decoder := json.NewDecoder(bytes.NewReader(signed.UnsafePayloadWithoutVerification()))
	decoder.UseNumber()
	if err := decoder.Decode(&claims); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"iat", "exp", "nbf", "auth_time"} {
		if number, ok := claims[name].(json.Number); ok {
			at, err := number.Int64()
			if err != nil {
				t.Fatal(err)
			}
			claims[name] = at + time.Now().Unix() - g.Made
		}
	}
	header := signed.Signatures[0].Header
	var stored []struct{ JWK jose.JSONWebKey }
	text, err := os.ReadFile(filepath.Join(folder, "fhir", "keys", "localhost-8443.json"))
	if err := errors.Join(err, json.Unmarshal(text, &stored)); err != nil {
		t.Fatal(err)
	}
	for _, key := range stored {
		if key.JWK.KeyID != header.KeyID {
			continue
		}
		options := (&jose.SignerOptions{}).WithType(jose.ContentType(header.ExtraHeaders[jose.HeaderType].(string)))
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(header.Algorithm), Key: key.JWK}, options)
		if err != nil {
			t.Fatal(err)
		}
		payload, _ := json.Marshal(claims) // of what was JSON
		again, err := signer.Sign(payload)
		if err != nil {
			t.Fatal(err)
		}
		compact, err := again.CompactSerialize()
		if err != nil {
			t.Fatal(err)
		}
		return compact
	}
	t.Fatalf("no key %s", strings.TrimSpace(header.KeyID))
	return ""
}
