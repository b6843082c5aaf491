package registration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
)

// The JSON names of stored clients are fixed, so that gateways of both versions can read them during an upgrade. Each
// registered value is stored.
func TestStoredClientMembers(t *testing.T) {
	t.Parallel()
	registration := &Registration{RequestObjects: true, Scopes: []string{"user/*.rs"}}
	client, err := registration.newClient(&clientMetadata{
		RedirectURIs: []string{"https://app.example/cb"}, ApplicationType: applicationNative, AuthMethod: "client_secret_basic", AuthAlgorithm: "ES384",
		JWKS: json.RawMessage(`{"keys":[]}`), JWKSURI: "https://app.example/jwks", Name: "App", LogoURI: "https://app.example/logo",
		PolicyURI: "https://app.example/policy", TermsURI: "https://app.example/terms", PostLogoutRedirectURIs: []string{"https://app.example/bye"},
		RequirePushed: true, UserinfoAlgorithm: "RS256", RequestAlgorithm: "ES256", RequestURIs: []string{"https://app.example/r"}, RequireRequestObject: true,
		BackchannelLogoutURI: "https://app.example/logout", BackchannelSession: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	client.ID = "x"
	text, err := (&registeredClient{Client: client}).encode()
	if err != nil {
		t.Fatal(err)
	}
	var stored struct {
		Client map[string]json.RawMessage `json:"client"`
	}
	if err := json.Unmarshal(text, &stored); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"AssertionAlgorithm", "BackchannelLogoutURI", "BackchannelSession", "ID", "JWKS", "JWKSURI", "Links", "Name", "Native", "PostLogoutRedirectURIs",
		"RedirectURIs", "RequestObjects", "RequirePushed", "ResponseTypes", "Scopes", "UserinfoAlgorithm",
	}
	if got := slices.Sorted(maps.Keys(stored.Client)); !slices.Equal(got, want) || string(stored.Client["JWKS"]) != `"eyJrZXlzIjpbXX0="` {
		t.Errorf("%q, %s, want %q", got, stored.Client["JWKS"], want)
	}
	if read, err := parseClient(text); err != nil || !reflect.DeepEqual(read.Client, client) {
		t.Errorf("%+v, %v, want %+v", read, err, client)
	}
}

// shelves returns the client stores of n gateways that share a store. earlier are clients in the first gateway's folder.
func shelves(t *testing.T, n int, earlier ...string) []*sharedStore {
	t.Helper()
	shared := storetest.NewSharedMemory(clientKind)
	var all []*sharedStore
	for i := range n {
		before := newCaddyStore(new(providertest.Storage), "fhir/clients/fhir.example.org")
		if i == 0 {
			for _, id := range earlier {
				if err := before.add(t.Context(), id, []byte(id), 1000); err != nil {
					t.Fatal(err)
				}
			}
		}
		all = append(all, newSharedStore(shared.Gateway(), before))
	}
	return all
}

// Concurrent gateways enforce the client limit exactly. Clients that are migrated from a folder may exceed the limit if other
// gateways have added clients before.
func TestLimitOverGateways(t *testing.T) {
	t.Parallel()
	all := shelves(t, 3, "earlier")
	if _, err := all[0].load(t.Context(), "earlier"); err != nil {
		t.Fatal(err)
	}
	var added, refused atomic.Int32
	var wg sync.WaitGroup
	for i := range 3 { // one at a time at each gateway, as in production
		wg.Go(func() {
			for j := range 10 {
				switch err := all[i].add(t.Context(), fmt.Sprint(i, "-", j), []byte("v"), 12); {
				case err == nil:
					added.Add(1)
				case errors.Is(err, errClientLimit):
					refused.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if added.Load() != 11 || refused.Load() != 19 {
		t.Errorf("%d added, %d refused", added.Load(), refused.Load())
	}
	if err := all[1].remove(t.Context(), "earlier"); err != nil {
		t.Fatal(err)
	}
	if err := all[2].add(t.Context(), "next", []byte("v"), 12); err != nil {
		t.Errorf("after one was removed: %v", err)
	}
}

// If a client is added, changed or removed, the change takes effect at all gateways immediately.
func TestRegisteredClientAtAllGateways(t *testing.T) {
	t.Parallel()
	ctx, all := t.Context(), shelves(t, 3)
	if err := all[0].add(ctx, "x", []byte("0"), 9); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, s := range all {
		wg.Go(func() {
			for range 5 {
				err := s.update(ctx, "x", func(value []byte) ([]byte, error) { return append(value, '+'), nil })
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for i, s := range all {
		if value, err := s.load(ctx, "x"); string(value) != "0"+strings.Repeat("+", 15) {
			t.Errorf("gateway %d: %s, %v", i, value, err)
		}
	}
	if err := all[1].remove(ctx, "x"); err != nil {
		t.Fatal(err)
	}
	for i, s := range all {
		if _, err := s.load(ctx, "x"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("removed, gateway %d: %v", i, err)
		}
		if err := s.update(ctx, "x", func(value []byte) ([]byte, error) { return value, nil }); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("changed after it was removed, gateway %d: %v", i, err)
		}
	}
}

// Clients are migrated only once: a client that was removed afterwards does not reappear when a gateway restarts.
func TestClientsAreMovedOnce(t *testing.T) {
	t.Parallel()
	ctx, all := t.Context(), shelves(t, 2, "a", "b")
	if _, err := all[1].load(ctx, "a"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("before it was moved: %v", err)
	}
	for _, id := range []string{"a", "b"} {
		if value, err := all[0].load(ctx, id); string(value) != id || err != nil {
			t.Errorf("%s: %s, %v", id, value, err)
		}
	}
	if err := all[1].remove(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	again := newSharedStore(all[0].store, all[0].legacy)
	if _, err := again.load(ctx, "a"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it came back: %v", err)
	}
	if _, err := again.load(ctx, "b"); err != nil {
		t.Error(err)
	}
}

// While Caddy's storage fails, loading a client that has not been migrated returns an error other than fs.ErrNotExist.
func TestClientMoveFails(t *testing.T) {
	t.Parallel()
	shared := storetest.NewSharedMemory(clientKind)
	before := newCaddyStore(&failingList{Storage: new(providertest.Storage)}, "fhir/clients/x")
	if err := before.storage.Store(t.Context(), before.key("a"), []byte("a")); err != nil {
		t.Fatal(err)
	}
	s := newSharedStore(shared.Gateway(), before)
	if _, err := s.load(t.Context(), "a"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("while the storage fails: %v", err)
	}
	if value, err := s.load(t.Context(), "a"); string(value) != "a" || err != nil {
		t.Errorf("afterwards: %s, %v", value, err)
	}
}

// failingList is a storage that fails on the first List.
type failingList struct {
	*providertest.Storage
	failed bool
}

func (f *failingList) List(ctx context.Context, path string, recursive bool) ([]string, error) {
	if !f.failed {
		f.failed = true
		return nil, errors.New("disk on fire")
	}
	return f.Storage.List(ctx, path, recursive)
}

// Requests to private networks are allowed only if the issuer is on loopback.
func TestTransport(t *testing.T) {
	t.Parallel()
	for issuer, private := range map[string]bool{
		"https://localhost:8443": true, "https://127.0.0.1:8443": true,
		"https://fhir.example.org": false, "https://localhost.example.org": false, "https://10.0.0.1": false,
	} {
		if got := newTransport(issuer) != nil; got != private {
			t.Errorf("%s: requests go to private addresses: %t", issuer, got)
		}
	}
}
