package fhirapp

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// Of several terminology servers the route with the longest prefix is asked, and the
// user's credentials are sent to none of them.
func TestRoutes(t *testing.T) {
	var leaked atomic.Bool
	named := func(name string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get("Authorization"); got != "" && got != "Bearer own" {
				leaked.Store(true)
			}
			if name == "snomed" && r.Header.Get("Authorization") != "Bearer own" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			w.Header().Set("Content-Type", "application/fhir+json")
			_, _ = io.WriteString(w, expansionOf(r.URL.Query().Get("url"), name))
		})
	}
	t.Setenv("TX_TOKEN", "own")
	g := frontGateway(t, "upstream "+terminologyServer(t, named("fallback"))+
		"\nroute http://snomed.info/sct "+terminologyServer(t, named("snomed"))+" {\n\tbearer {env.TX_TOKEN}\n}"+
		"\nroute http://snomed.info/sct/45991000052106 "+terminologyServer(t, named("swedish")), named("backend"))
	for url, want := range map[string]string{
		"http://snomed.info/sct?fhir_vs":                     "snomed",
		"http://snomed.info/sct/45991000052106?fhir_vs":      "swedish",
		"http://snomed.info/sctx":                            "fallback",
		foreign:                                              "fallback",
		"http://hl7.org/fhir/ValueSet/administrative-gender": "male female other unknown",
	} {
		for range 2 {
			codes := expandedCodes(t, gatewaytest.Read(t, g.askFor(strings.ReplaceAll(url, "?", "%3F"), "Bearer users")))
			if got := strings.Join(codes, " "); got != want {
				t.Errorf("%s: %s, want %s", url, got, want)
			}
		}
	}
	checkCodes(t, gatewaytest.Read(t, g.Get("/fhir/R4/ValueSet/7/$expand", "")), "backend") // of an instance
	if leaked.Load() {
		t.Error("a terminology server was sent a user's credentials")
	}
}

// What is asked of an upstream with many filters is fetched whole, and searched here.
func TestPullThrough(t *testing.T) {
	origin := newGateway(t, frontCaddyfile("ttl off", gatewaytest.NoBackend))
	var asked atomic.Int64
	server := gatewaytest.Backend(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		r.Host = "localhost:8443"
		origin.Server.ServeHTTP(w, r)
	}))
	synonyms := gatewaytest.WriteFile(t, "words.txt", "teutonic => german")
	g := newGateway(t, frontCaddyfile("core off\nsynonyms "+synonyms+"\nupstream http://"+server+"/fhir/R4", gatewaytest.NoBackend))
	search := func(filter string) (codes []string) {
		return expandedCodes(t, gatewaytest.Read(t, g.Get(expandPath("http://hl7.org/fhir/ValueSet/languages")+"&filter="+filter, "")))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for n := 0; ; n++ { // until what is fetched in the background is there
		before := asked.Load()
		if search(fmt.Sprintf("g%d", n)); asked.Load() == before {
			break
		}
		if ctx.Err() != nil {
			t.Fatal("each filter is asked for")
		}
	}
	before := asked.Load()
	for _, filter := range []string{"germ", "teutonic"} {
		if got := search(filter); !slices.Contains(got, "de") {
			t.Errorf("%s: %q", filter, got)
		}
	}
	if asked.Load() != before {
		t.Error("it was asked all the same")
	}
	if response := g.Ask(http.MethodPatch, "/fhir/R4/CodeSystem/1", ""); response.StatusCode != http.StatusBadGateway { // it may have been done
		t.Fatal(response.StatusCode)
	}
	if search("fren"); asked.Load() == before {
		t.Error("it was not asked after a write")
	}
}

// An upstream would take users for one client, and give what one of them brought
// along to others.
func TestUpstreamIsSentNoCacheID(t *testing.T) {
	t.Parallel()
	server := newScripted("good")
	g := frontGateway(t, "upstream "+terminologyServer(t, server), http.NotFoundHandler())
	for range 3 {
		gatewaytest.Read(t, g.Get(expandPath(foreign)+"&cache-id=1", ""))
		gatewaytest.Read(t, g.Ask(http.MethodPost, "/fhir/R4/ValueSet/$expand", `{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"`+foreign+`"},{"name":"cache-id","valueId":"1"}]}`, "Content-Type", "application/fhir+json"))
	}
	if n := server.asked.Load(); n != 0 {
		t.Errorf("asked %d times", n)
	}
}
