package fhirapp

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
)

// unpack restores a backup as tar does.
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

// A gateway that starts with a backup, which was made while the first one was busy, goes on where that was: people are signed
// in, apps refresh, registered clients are known, second factors can be read, and what was revoked stays so.
func TestBackupIsRestored(t *testing.T) {
	t.Parallel()
	folder := gatewaytest.Folder(t)
	registering := func(folder string) *gateway {
		return newGatewayAt(t, gatewaytest.ExampleText(t, "fhir {", "fhir {\n\t\tstore file {\n\t\t\tpath "+filepath.Join(folder, "codes.db")+"\n\t\t}\n\t\tregistration {\n\t\t\tinitial_access_token may-register-clients\n\t\t\tscope openid\n\t\t}"), folder)
	}
	before := registering(folder)
	offline := gatewaytest.DemoRequest()
	offline.Set("scope", "openid offline_access")
	kept := before.exchange(gatewaytest.CodeForm(before.CodeOf(offline)))
	revoked := before.exchange(gatewaytest.CodeForm(codeAt(t, before.Get("/oauth2/authorize?"+offline.Encode(), ""))))
	before.Post("/oauth2/revoke", map[string][]string{"client_id": {"demo-app"}, "token": {revoked["refresh_token"].(string)}})
	client := before.register(t)
	app, err := fhirbase.Find[*App](before.Context)
	if err != nil {
		t.Fatal(err)
	}
	factor, err := app.keys.SealStored(t.Context(), "a second factor", "alice")
	if err != nil {
		t.Fatal(err)
	}

	busy, rest := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for i := range 4 {
		writers.Go(func() {
			for busy.Err() == nil {
				_ = app.stores.Durable.Put(t.Context(), "busy:"+string(rune('a'+i)), make([]byte, 5000), time.Minute)
			}
		})
	}
	w, err := admin(t, before.Context, http.MethodGet, "/fhir/backup")
	rest()
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

	after := registering(restored)
	if r := after.Get("/oauth2/userinfo", kept["access_token"].(string)); r.StatusCode != http.StatusOK {
		t.Errorf("an access token of before: %d", r.StatusCode)
	}
	if r := after.Get("/oauth2/userinfo", revoked["access_token"].(string)); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("a revoked access token: %d", r.StatusCode)
	}
	if tokens := after.exchange(refreshForm(kept["refresh_token"])); tokens["access_token"] == nil {
		t.Errorf("refreshed: %v", tokens)
	}
	if r := after.Post("/oauth2/token", refreshForm(revoked["refresh_token"])); r.StatusCode != http.StatusBadRequest {
		t.Errorf("a revoked refresh token: %d", r.StatusCode)
	}
	if r := after.Get("/oauth2/authorize?response_type=code&scope=openid&client_id="+client+"&redirect_uri=https%3A%2F%2Fapp.example.org%2Fcb&code_challenge_method=S256&code_challenge="+strings.Repeat("a", 43), ""); r.StatusCode != http.StatusFound {
		t.Errorf("a registered client: %d", r.StatusCode)
	}
	app, err = fhirbase.Find[*App](after.Context)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := app.keys.UnsealStored(t.Context(), factor, "alice"); text != "a second factor" {
		t.Errorf("a second factor: %q, %v", text, err)
	}
}

// codeAt is the code of an answer to somebody who is signed in.
func codeAt(t *testing.T, r *http.Response) string {
	t.Helper()
	location, err := r.Location()
	if err != nil || location.Query().Get("code") == "" {
		t.Fatalf("no code: %v, %v", location, err)
	}
	return location.Query().Get("code")
}

// register registers a client, and returns its client_id.
func (g *gateway) register(t *testing.T) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://localhost:8443/oauth2/register",
		strings.NewReader(`{"redirect_uris":["https://app.example.org/cb"],"token_endpoint_auth_method":"none"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer may-register-clients")
	var registered struct {
		ClientID string `json:"client_id"`
	}
	response := g.Send(r)
	if err := json.NewDecoder(response.Body).Decode(&registered); err != nil || registered.ClientID == "" {
		t.Fatalf("registration: %d, %v", response.StatusCode, err)
	}
	return registered.ClientID
}

// What is in a store of several gateways is not backed up here, and a backup that fails is not taken for whole.
func TestBackupRefused(t *testing.T) {
	newTestServer(t)
	g := newPeer(t, "a", gatewaytest.Folder(t))
	g.app.StoreKeys = []string{"any"}
	if _, err := admin(t, g.Context, http.MethodGet, "/fhir/backup"); err == nil || !strings.Contains(err.Error(), "make its backup there") {
		t.Errorf("of a shared store: %v", err)
	}
	folder := gatewaytest.Folder(t)
	alone := newGatewayAt(t, gatewaytest.ExampleText(t, "", ""), folder)
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
