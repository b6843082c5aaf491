package caddymodule

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

// What one user brought along under a cache-id, another one with the same id does
// not get: neither from what is remembered nor from the cache.
func TestCacheIDIsTheUsers(t *testing.T) {
	g := exampleGateway(t, http.NotFoundHandler())
	alice, service := g.token(), g.serviceToken()
	r := httptest.NewRequest(http.MethodPost, "/fhir/R4/ValueSet/$expand", strings.NewReader(`{"resourceType":"Parameters","parameter":[
		{"name":"url","valueUri":"`+foreign+`"},{"name":"cache-id","valueId":"1"},{"name":"tx-resource","resource":`+listing("v", foreign, "secret")+`}]}`))
	r.Header.Set("Content-Type", "application/fhir+json")
	r.Header.Set("Authorization", "Bearer "+alice)
	if got := read(t, g.send(r)); !strings.Contains(got, "secret") {
		t.Fatal(got)
	}
	for range 3 {
		for _, id := range []string{"&cache-id=1", "&cache%2Did=1"} {
			path := expandPath(url.QueryEscape(foreign)) + id
			if got := read(t, g.get(path, alice)); !strings.Contains(got, "secret") {
				t.Errorf("%s for who brought it along: %s", id, got)
			}
			if got := g.get(path, service); got.StatusCode != http.StatusNotFound {
				t.Errorf("%s for another: %d", id, got.StatusCode)
			}
		}
	}
}

// An upstream would take users for one client, and give what one of them brought
// along to others.
func TestUpstreamIsSentNoCacheID(t *testing.T) {
	server := newScripted("good")
	g := frontGateway(t, "upstream "+terminologyServer(t, server), http.NotFoundHandler())
	for range 3 {
		read(t, g.get(expandPath(foreign)+"&cache-id=1", ""))
		r := httptest.NewRequest(http.MethodPost, "/fhir/R4/ValueSet/$expand", strings.NewReader(`{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"`+foreign+`"},{"name":"cache-id","valueId":"1"}]}`))
		r.Header.Set("Content-Type", "application/fhir+json")
		read(t, g.send(r))
	}
	if n := server.asked.Load(); n != 0 {
		t.Errorf("asked %d times", n)
	}
}

// All that a token says of its holder keeps the answers of servers behind us apart: what
// was asked in the context of one patient is not for another's.
func TestPrincipal(t *testing.T) {
	var host expandHost
	names := []string{"id", "client_id", "scope", "patient", "fhir_user", "issuer"}
	requestOf := func(other string) context.Context {
		replacer := caddy.NewReplacer()
		for _, name := range names {
			replacer.Set("http.auth.user."+name, "a")
		}
		if other != "" {
			replacer.Set("http.auth.user."+other, "b")
		}
		return context.WithValue(t.Context(), caddy.ReplacerCtxKey, replacer)
	}
	for _, name := range names {
		if host.Principal(requestOf(name)) == host.Principal(requestOf("")) {
			t.Errorf("%s makes no difference", name)
		}
	}
	if host.Client(requestOf("patient")) != host.Client(requestOf("")) {
		t.Error("answers that are the same for all are kept for each patient")
	}
}
