package fhirapp

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
)

// After a reload, the signing keys and tokens stay valid even if the key file was damaged or lost. The file is not changed.
func TestReloadKeepsKeys(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, content string }{{"damaged", "[{"}, {"missing", ""}} {
		t.Run(test.name, func(t *testing.T) {
			folder := t.TempDir()
			before := newGatewayAt(t, gatewaytest.ExampleText(t, "", ""), folder)
			token := before.Token()
			file := filepath.Join(folder, "fhir", "keys", "localhost-8443.json")
			err := os.Remove(file)
			if test.content != "" {
				err = os.WriteFile(file, []byte(test.content), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			after := newGatewayAt(t, gatewaytest.ExampleText(t, "", ""), folder)
			app, err := fhirbase.FindApp[*App](after.Context)
			if err != nil {
				t.Fatal(err)
			}
			if err := app.keys.Refresh(t.Context()); err != nil {
				t.Error(err)
			}
			if r := after.Get("/fhir/R4/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/administrative-gender", token); r.StatusCode != http.StatusOK {
				t.Errorf("earlier token: %d", r.StatusCode)
			}
			if content, _ := os.ReadFile(file); string(content) != test.content {
				t.Errorf("the file is %q", content)
			}
		})
	}
}

const (
	storeKey      = "q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA=" // base64 of 32 bytes
	otherStoreKey = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA="
)

// sharedStoreExample returns the example with the given lines and a durable store at path, so that gateways in this process can
// share it.
func sharedStoreExample(t *testing.T, path, lines string) string {
	const base = "fhir_base /fhir/R4"
	return gatewaytest.ExampleText(t, base, base+"\n\n\t\tstore file {\n\t\t\tpath "+path+"\n\t\t}"+lines)
}

func (g *gateway) accepts(token string) bool {
	return g.Get("/fhir/R4/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/administrative-gender", token).StatusCode == http.StatusOK
}

// With a store key, gateways share only the durable store. A token issued by one gateway is valid at the others, and Caddy's
// storage contains no keys.
func TestStoreKey(t *testing.T) {
	t.Setenv("STORE_KEY", storeKey)
	path, folder := filepath.Join(t.TempDir(), "shared.db"), t.TempDir()
	with := sharedStoreExample(t, path, "\n\t\tstore_key {env.STORE_KEY}")
	var token string
	t.Run("one that is gone", func(t *testing.T) { token = newGatewayAt(t, with, folder).Token() })
	for name, tt := range map[string]struct {
		caddyfile string
		good      bool
	}{
		"another gateway":            {with, true},
		"the key in the file":        {sharedStoreExample(t, path, "\n\t\tstore_key "+storeKey), true},
		"a new key behind it":        {sharedStoreExample(t, path, "\n\t\tstore_key "+storeKey+" "+otherStoreKey), true},
		"one with keys of its own":   {sharedStoreExample(t, path, ""), false},
		"one with another store key": {sharedStoreExample(t, filepath.Join(t.TempDir(), "own.db"), "\n\t\tstore_key "+otherStoreKey), false},
	} {
		t.Run(name, func(t *testing.T) {
			if newGateway(t, tt.caddyfile).accepts(token) != tt.good {
				t.Errorf("the token is good: %v", !tt.good)
			}
		})
	}
	if _, err := os.Stat(filepath.Join(folder, "fhir", "keys")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there are keys in Caddy's storage: %v", err)
	}
}

// Setting a store key does not invalidate tokens, because the first gateway imports its keys into the store.
func TestStoreKeyTakesOverKeys(t *testing.T) {
	t.Parallel()
	path, folder := filepath.Join(t.TempDir(), "shared.db"), t.TempDir()
	var token string
	t.Run("before", func(t *testing.T) { token = newGatewayAt(t, sharedStoreExample(t, path, ""), folder).Token() })
	with := sharedStoreExample(t, path, "\n\t\tstore_key "+storeKey)
	if !newGatewayAt(t, with, folder).accepts(token) {
		t.Error("the token ended")
	}
	if !newGateway(t, with).accepts(token) {
		t.Error("another gateway refuses it")
	}
}

// A running gateway checks the stored keys and restores keys that the store has lost.
func TestRunningGatewayRestoresLostKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const entry = "keyring:fhir/keys/x.example.json"
		server := newTestServer(t)
		lossy := server.Gateway()
		app, _, err := provisionApp(t, &App{Issuer: "https://x.example", StoreRaw: onServer(t, ""), StoreKeys: []string{storeKey}})
		if err != nil {
			t.Fatal(err)
		}
		var cancel func()
		app.ctx, cancel = caddy.NewContext(app.ctx)
		t.Cleanup(func() { cancel(); _ = server.used[0].Cleanup() })
		if err := app.Start(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		before, err := app.keys.JWKS(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := lossy.Delete(t.Context(), entry); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if value, err := lossy.Get(t.Context(), entry); err != nil || len(value) == 0 {
			t.Errorf("the keys are not back: %v", err)
		}
		if after, err := app.keys.JWKS(t.Context()); err != nil || string(after) != string(before) {
			t.Errorf("other keys: %v", err)
		}
	})
}
