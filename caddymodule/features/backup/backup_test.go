package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/authorization"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/bearer"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/expand"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/outcome"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/file"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/memory"
)

// unpack extracts a backup as tar does. It returns the names of the files.
func unpack(t *testing.T, archive []byte, folder string) (names []string) {
	t.Helper()
	return unpackFiles(t, tar.NewReader(bytes.NewReader(archive)), folder)
}

func unpackFiles(t *testing.T, r *tar.Reader, folder string) (names []string) {
	t.Helper()
	for {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag == tar.TypeDir {
			continue
		}
		path := filepath.Join(folder, header.Name)
		content, err := io.ReadAll(r)
		if err := errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, content, header.FileInfo().Mode())); err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
	}
}

// A gateway restored from a backup, which was made under load, continues with the same state: sessions, refresh tokens,
// features' data in Caddy's storage, second factors and revocations.
func TestBackupIsRestored(t *testing.T) {
	t.Parallel()
	folder := gatewaytest.StorageFolder(t)
	at := func(folder string) *gatewaytest.Gateway {
		return gatewaytest.NewInFolder(t, gatewaytest.ExampleText(t, "", ""), folder)
	}
	before := at(folder)
	offline := gatewaytest.DemoRequest()
	offline.Set("scope", "openid offline_access")
	issued := exchange(t, before, gatewaytest.CodeForm(before.CodeFor(offline)))
	revoked := exchange(t, before, gatewaytest.CodeForm(codeAt(t, before.Get("/oauth2/authorize?"+offline.Encode(), ""))))
	before.Post("/oauth2/revoke", map[string][]string{"client_id": {"demo-app"}, "token": {revoked["refresh_token"].(string)}})
	app, err := fhirbase.FindApp[*fhirapp.App](before.Context)
	if err != nil {
		t.Fatal(err)
	}
	const inStorage = "fhir/clients/localhost-8443/registered-x.json"
	if err := app.Storage().Store(t.Context(), inStorage, []byte("a client")); err != nil {
		t.Fatal(err)
	}
	factor, err := app.Keys().SealStored(t.Context(), "a second factor", "alice")
	if err != nil {
		t.Fatal(err)
	}

	busy, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for i := range 4 {
		writers.Go(func() {
			for busy.Err() == nil {
				_ = app.Stores().Durable.Put(t.Context(), "busy:"+string(rune('a'+i)), make([]byte, 5000), time.Minute)
			}
		})
	}
	w, err := admin(t, before.Context, http.MethodGet, "/fhir/backup")
	stop()
	writers.Wait()
	if err != nil || w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/x-tar" {
		t.Fatal(err, w.Code, w.Header())
	}
	restored := t.TempDir()
	names := unpack(t, w.Body.Bytes(), restored)
	for _, name := range []string{"fhir/localhost-8443.db", "fhir/keys/localhost-8443.json", "fhir/keys/localhost-8443-stored.json"} {
		if !slices.Contains(names, name) {
			t.Errorf("no %s in %q", name, names)
		}
	}

	after := at(restored)
	if r := after.Get("/oauth2/userinfo", issued["access_token"].(string)); r.StatusCode != http.StatusOK {
		t.Errorf("access token from before the backup: %d", r.StatusCode)
	}
	if r := after.Get("/oauth2/userinfo", revoked["access_token"].(string)); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("a revoked access token: %d", r.StatusCode)
	}
	if tokens := exchange(t, after, refreshForm(issued["refresh_token"])); tokens["access_token"] == nil {
		t.Errorf("refreshed: %v", tokens)
	}
	if r := after.Post("/oauth2/token", refreshForm(revoked["refresh_token"])); r.StatusCode != http.StatusBadRequest {
		t.Errorf("a revoked refresh token: %d", r.StatusCode)
	}
	app, err = fhirbase.FindApp[*fhirapp.App](after.Context)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := app.Storage().Load(t.Context(), inStorage); string(text) != "a client" {
		t.Errorf("a file in Caddy's storage: %q, %v", text, err)
	}
	if text, err := app.Keys().UnsealStored(t.Context(), factor, "alice"); text != "a second factor" {
		t.Errorf("a second factor: %q, %v", text, err)
	}
}

func admin(t *testing.T, ctx caddy.Context, method, target string) (*httptest.ResponseRecorder, error) {
	t.Helper()
	mux := http.NewServeMux()
	var err error
	for _, route := range (&fhirapp.AdminAPI{RunningContext: func() caddy.Context { return ctx }}).Routes() {
		mux.HandleFunc(route.Pattern, func(w http.ResponseWriter, r *http.Request) { err = route.Handler.ServeHTTP(w, r) })
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(method, target, nil))
	return w, err
}

func refreshForm(token any) url.Values {
	text, _ := token.(string)
	return url.Values{"grant_type": {"refresh_token"}, "client_id": {"demo-app"}, "refresh_token": {text}}
}

func exchange(t *testing.T, g *gatewaytest.Gateway, form url.Values) (tokens map[string]any) {
	t.Helper()
	r := g.Post("/oauth2/token", form)
	if err := json.NewDecoder(r.Body).Decode(&tokens); err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("token endpoint: %d %v, %v", r.StatusCode, tokens, err)
	}
	return tokens
}

// codeAt returns the authorization code in a response.
func codeAt(t *testing.T, r *http.Response) string {
	t.Helper()
	location, err := r.Location()
	if err != nil || location.Query().Get("code") == "" {
		t.Fatalf("no code: %v, %v", location, err)
	}
	return location.Query().Get("code")
}

// A store that several gateways share cannot be backed up. A failed backup is recognizable as incomplete.
func TestBackupRejected(t *testing.T) {
	shared := gatewaytest.Example(t, nil, "fhir {", "fhir {\n\t\tstore memory")
	app, err := fhirbase.FindApp[*fhirapp.App](shared.Context)
	if err != nil {
		t.Fatal(err)
	}
	app.StoreKeys = []string{"any"} // the keys are also in the store
	if _, err := admin(t, shared.Context, http.MethodGet, "/fhir/backup"); err == nil || !strings.Contains(err.Error(), "back up that store instead") {
		t.Errorf("of a shared store: %v", err)
	}
	folder := gatewaytest.StorageFolder(t)
	alone := gatewaytest.NewInFolder(t, gatewaytest.ExampleText(t, "", ""), folder)
	alone.Token()
	if err := os.Truncate(filepath.Join(folder, "fhir", "localhost-8443.db"), 4096); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err, _ := recover().(error); !errors.Is(err, http.ErrAbortHandler) {
			t.Error("a backup of a damaged file is whole")
		}
	}()
	_, _ = admin(t, alone.Context, http.MethodGet, "/fhir/backup")
}

func TestMain(m *testing.M) { os.Exit(gatewaytest.Main(m)) }
