package brands_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/brands"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

func get(t testing.TB, p *brands.Publication, header http.Header) *httptest.ResponseRecorder {
	t.Helper()
	r, w := httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder()
	r.Header = header
	if err := p.Serve(w, r); err != nil {
		t.Fatal(err)
	}
	return w
}

func hospital() brands.Brand {
	return brands.Brand{
		Name: "Example Hospital", Website: "https://www.hospital.example/",
		Logo:      brands.Logo{Image: "https://hospital.example/logo.svg", License: "https://hospital.example/logo.html"},
		Addresses: []brands.Address{{Line: []string{"1 Main Street"}, City: "Springfield", State: "MA", PostalCode: "01101"}},
		Portals:   []brands.Portal{{Name: "My Records", Website: "https://my.hospital.example", Description: "For patients."}, {Website: brands.AskedDeclined}},
		Endpoint:  brands.Endpoint{Developers: "https://developers.hospital.example"},
	}
}

func madeOf(t testing.TB, brand brands.Brand) *brands.Bundle {
	t.Helper()
	b, err := brands.Make(brand, fhirBase)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// What is made keeps the rules by which files are checked, with its times too.
func TestMake(t *testing.T) {
	t.Parallel()
	b := madeOf(t, hospital())
	if got := *b.Primary(); got != (brands.Identifier{System: "urn:ietf:rfc:3986", Value: "https://hospital.example"}) {
		t.Errorf("primary %v", got)
	}
	body := get(t, brands.NewPublication(b, store.NewMemory(0, 0)), nil).Body.String()
	if _, err := brands.Read([]byte(body), fhirBase, nil); err != nil {
		t.Error(err)
	}
	for _, want := range []string{
		`"valueUrl":"https://my.hospital.example"`, `"valueCode":"asked-declined"`,
		`"valueCode":"4.0.1"`, `"address":"` + fhirBase + `"`, `"line":["1 Main Street"]`,
		`"url":"brandLogoLicense"`, `"fullUrl":"` + fhirBase + `/.well-known/user-access-brands/Endpoint/fhir"`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("%s is missing in %s", want, body)
		}
	}
}

func TestMakeWithoutWebsite(t *testing.T) {
	t.Parallel()
	brand := brands.Brand{Name: "Clinic", Website: brands.AskedUnknown, Endpoint: brands.Endpoint{Developers: "https://developers.example"}}
	if b := madeOf(t, brand); b.Primary() != nil {
		t.Errorf("primary %v", b.Primary())
	}
	brand.Endpoint.Developers = ""
	if _, err := brands.Make(brand, fhirBase); err == nil || !strings.Contains(err.Error(), "contact") {
		t.Error(err)
	}
}

func TestServe(t *testing.T) {
	t.Parallel()
	b, err := brands.Read([]byte(network(t)), fhirBase, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := brands.NewPublication(b, nil)
	r := get(t, p, nil)
	tag := r.Header().Get("ETag")
	if r.Body.String() != network(t) || !strings.HasPrefix(tag, `W/"`) || r.Header().Get("Content-Type") != "application/fhir+json" {
		t.Errorf("header %v, body %s", r.Header(), r.Body)
	}
	if got := r.Header().Get("Last-Modified"); got != "Sun, 01 Mar 2026 08:00:00 GMT" {
		t.Errorf("Last-Modified %q", got)
	}
	for condition, want := range map[string]int{
		tag: 304, strings.TrimPrefix(tag, "W/"): 304, `"other", ` + tag: 304, "*": 304, `W/"other"`: 200,
	} {
		if r := get(t, p, http.Header{"If-None-Match": {condition}}); r.Code != want || want == 304 && r.Body.Len() > 0 {
			t.Errorf("%s: status %d", condition, r.Code)
		}
	}
}

func timestamp(t testing.TB, p *brands.Publication) (at time.Time) {
	t.Helper()
	var written struct{ Timestamp time.Time }
	if err := json.Unmarshal(get(t, p, nil).Body.Bytes(), &written); err != nil {
		t.Error(err)
	}
	return written.Timestamp
}

// The timestamp is that of the last change, over restarts.
func TestTimestamp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		durable, first := store.NewMemory(0, 0), time.Now()
		if at := timestamp(t, brands.NewPublication(madeOf(t, hospital()), durable)); !at.Equal(first) {
			t.Errorf("first %v, now %v", at, first)
		}
		time.Sleep(30 * 24 * time.Hour)
		if at := timestamp(t, brands.NewPublication(madeOf(t, hospital()), durable)); !at.Equal(first) {
			t.Errorf("after a restart %v, want %v", at, first)
		}
		changed := hospital()
		changed.Name = "Example Hospitals"
		if at := timestamp(t, brands.NewPublication(madeOf(t, changed), durable)); !at.Equal(time.Now()) {
			t.Errorf("changed: %v", at)
		}
		time.Sleep(time.Hour)
		if at := timestamp(t, brands.NewPublication(madeOf(t, hospital()), durable)); !at.Equal(time.Now()) {
			t.Errorf("changed back: %v", at)
		}
	})
}

// Gateways that share a store agree on the timestamp.
func TestTimestampOfSeveralGateways(t *testing.T) {
	t.Parallel()
	durable := store.NewMemory(0, 0)
	var all sync.WaitGroup
	times := make([]time.Time, 8)
	for i := range times {
		all.Go(func() { times[i] = timestamp(t, brands.NewPublication(madeOf(t, hospital()), durable)) })
	}
	all.Wait()
	for _, at := range times {
		if !at.Equal(times[0]) {
			t.Errorf("%v, and %v", at, times[0])
		}
	}
}

// failing is a store that is out of reach.
type failing struct{ store.Store }

var errDown = errors.New("down")

func (failing) Do(context.Context, ...*store.Call) error { return errDown }

func TestServeWithoutStore(t *testing.T) {
	t.Parallel()
	p := brands.NewPublication(madeOf(t, hospital()), failing{})
	w := httptest.NewRecorder()
	if err := p.Serve(w, httptest.NewRequest(http.MethodGet, "/", nil)); !errors.Is(err, errDown) || w.Body.Len() > 0 {
		t.Errorf("%v, %s", err, w.Body)
	}
}

// branded adds brands to a configuration.
func branded(t testing.TB) func(*authorize.Config) {
	bundle, err := brands.Make(brands.Brand{
		Name: "Example Hospital", Website: "https://www.hospital.example",
		Endpoint: brands.Endpoint{Developers: "https://developers.hospital.example"},
	}, servertest.FHIRBase)
	if err != nil {
		t.Fatal(err)
	}
	return func(c *authorize.Config) { c.UserAccessBrands = bundle }
}

const brandsPath = "/fhir/R4/.well-known/user-access-brands"

func TestUserAccessBrands(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, branded(t)))
	m := servertest.Decode[smart.Configuration](t, b.Get("/fhir/R4/.well-known/smart-configuration"))
	if m.UserAccessBrandBundle != servertest.Issuer+brandsPath {
		t.Errorf("bundle %q", m.UserAccessBrandBundle)
	}
	if got := m.UserAccessBrandIdentifier; got == nil || *got != (smart.Identifier{System: "urn:ietf:rfc:3986", Value: "https://hospital.example"}) {
		t.Errorf("identifier %v", got)
	}
	r := b.Get(brandsPath)
	if r.StatusCode != http.StatusOK || r.Header.Get("Content-Type") != "application/fhir+json" {
		t.Errorf("status %d, header %v", r.StatusCode, r.Header)
	}
	if got := servertest.Decode[map[string]any](t, r); got["resourceType"] != "Bundle" || got["timestamp"] == "" {
		t.Errorf("%v", got)
	}
	head := b.Send(httptest.NewRequest(http.MethodHead, brandsPath, nil))
	if head.StatusCode != http.StatusOK || head.Header.Get("ETag") != r.Header.Get("ETag") || servertest.Body(t, head) != "" {
		t.Errorf("HEAD: %d, %v", head.StatusCode, head.Header)
	}
	again := httptest.NewRequest(http.MethodGet, brandsPath, nil)
	again.Header.Set("If-None-Match", r.Header.Get("ETag"))
	if got := b.Send(again); got.StatusCode != http.StatusNotModified {
		t.Errorf("again: %d", got.StatusCode)
	}
}

// Scripts of all origins may read the Bundle, and cache it by its ETag.
func TestUserAccessBrandsCORS(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, branded(t)))
	r := servertest.SendFrom(b, "https://anybody.example", http.MethodGet, brandsPath, nil)
	if exposed := r.Header.Get("Access-Control-Expose-Headers"); r.Header.Get("Access-Control-Allow-Origin") != "*" || !strings.Contains(strings.ToLower(exposed), "etag") {
		t.Errorf("%v", r.Header)
	}
	preflight := httptest.NewRequest(http.MethodOptions, brandsPath, nil)
	preflight.Header = http.Header{"Origin": {"https://anybody.example"}, "Access-Control-Request-Method": {"GET"}, "Access-Control-Request-Headers": {"if-none-match"}}
	if got := b.Send(preflight); got.Header.Get("Access-Control-Allow-Origin") != "*" || got.Header.Get("Access-Control-Allow-Headers") != "if-none-match" {
		t.Errorf("preflight: %v", got.Header)
	}
}

func TestNoUserAccessBrands(t *testing.T) {
	t.Parallel()
	server := servertest.New(t, nil)
	m := servertest.Decode[map[string]any](t, servertest.NewBrowser(t, server).Get("/fhir/R4/.well-known/smart-configuration"))
	if server.Serves(brandsPath) || m["user_access_brand_bundle"] != nil || m["user_access_brand_identifier"] != nil {
		t.Errorf("%v", m)
	}
}
