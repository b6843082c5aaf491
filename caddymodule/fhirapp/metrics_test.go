package fhirapp

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/expand"
	"github.com/caddy-fhir/caddy-fhir/terminology/dispatch"
)

// series are the values of a gateway's metrics of ours, as a scrape shows them;
// of a histogram, how often it observed.
func (g *gateway) series() map[string]float64 {
	g.t.Helper()
	families, err := g.Context.GetMetricsRegistry().Gather()
	if err != nil {
		g.t.Fatal(err)
	}
	all := map[string]float64{}
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), "caddy_fhir_") {
			continue
		}
		for _, metric := range family.GetMetric() {
			name := family.GetName()
			for _, label := range metric.GetLabel() {
				name += " " + label.GetName() + "=" + label.GetValue()
			}
			all[name] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
		}
	}
	return all
}

func TestMetrics(t *testing.T) {
	backend := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	g := exampleGateway(t, backend)
	token := g.Token()
	for _, name := range endpoint.Names() {
		if _, measured := g.series()["caddy_fhir_endpoint_duration_seconds endpoint="+name]; !measured {
			t.Errorf("%s is not measured", name)
		}
	}
	tests := []struct {
		name string
		do   func()
		want []string // each one more
	}{
		{"a sign-in", func() { g.Cookies = map[string]string{}; g.Code() }, []string{
			"caddy_fhir_authorization_events_total grant= kind=sign-in outcome=success",
			"caddy_fhir_authorization_events_total grant=code kind=authorization outcome=success",
			"caddy_fhir_endpoint_duration_seconds endpoint=authorize",
			"caddy_fhir_endpoint_duration_seconds endpoint=login", "caddy_fhir_endpoint_duration_seconds endpoint=login",
		}},
		{"a grant that is none", func() { g.Post("/oauth2/token", url.Values{"grant_type": {"anything"}, "client_id": {"demo-app"}}) }, []string{
			"caddy_fhir_authorization_events_total grant=other kind=token outcome=unsupported_grant_type",
			"caddy_fhir_endpoint_duration_seconds endpoint=token",
		}},
		{"discovery", func() { g.Get("/fhir/R4/.well-known/smart-configuration", "") }, []string{"caddy_fhir_endpoint_duration_seconds endpoint=smart-configuration"}},
		{"no token", func() { g.Get("/fhir/R4/Patient", "") }, []string{"caddy_fhir_bearer_decisions_total outcome=no_token"}},
		{"a bad token", func() { g.Get("/fhir/R4/Patient", "x") }, []string{"caddy_fhir_bearer_decisions_total outcome=invalid_token"}},
		{"a bad path", func() { g.Get("/fhir/R4//Patient", token) }, []string{"caddy_fhir_bearer_decisions_total outcome=bad_request"}},
		{"metadata", func() { g.Get("/fhir/R4/metadata", "") }, []string{"caddy_fhir_bearer_decisions_total outcome=public"}},
		{"a preflight", func() { g.preflight("/fhir/R4/Patient", "https://app.example.org") }, []string{"caddy_fhir_bearer_decisions_total outcome=preflight"}},
		{"expanded here", func() {
			g.Get("/fhir/R4/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/administrative-gender", token)
		}, []string{
			"caddy_fhir_bearer_decisions_total outcome=allowed", "caddy_fhir_expand_requests_total result=here",
		}},
		{"expanded by the next handler", func() { g.Get("/fhir/R4/ValueSet/$expand?url=http://example.org/unknown", token) }, []string{
			"caddy_fhir_bearer_decisions_total outcome=allowed", "caddy_fhir_expand_requests_total result=next", "caddy_fhir_expand_next_duration_seconds",
			"caddy_fhir_expansion_cache_requests_total result=miss",
		}},
		{"a wrong $expand", func() { g.Get("/fhir/R4/ValueSet/$expand?url=x&count=y", token) }, []string{
			"caddy_fhir_bearer_decisions_total outcome=allowed", "caddy_fhir_expand_requests_total result=refused",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := g.series()
			tt.do()
			var got []string
			for name, value := range g.series() {
				if strings.Contains(name, "store=test_shared") || name == "caddy_fhir_definitions_load_failed" {
					continue // of another test's, which is tried in the background: the counters are the process's
				}
				if strings.HasPrefix(name, "caddy_fhir_store_entries") {
					continue // a gauge: TestCapacityMetrics
				}
				for range int(value - before[name]) {
					got = append(got, name)
				}
			}
			slices.Sort(got)
			if slices.Sort(tt.want); !slices.Equal(got, tt.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
	for _, content := range []string{"concepts", "code_systems", "value_sets"} {
		if n := g.series()["caddy_fhir_definitions content="+content]; n < 100 {
			t.Errorf("%v %s", n, content)
		}
	}
}

// Each configuration's registry has the metrics, and they go on counting: neither
// a reload nor a second handler registers in vain, or panics.
func TestMetricsOutliveReload(t *testing.T) {
	const name = "caddy_fhir_bearer_decisions_total outcome=no_token"
	first := exampleGateway(t, nil)
	first.Get("/fhir/R4/Patient", "")
	before := first.series()[name]
	second := exampleGateway(t, nil)
	second.Get("/fhir/R4/Patient", "")
	if after := second.series()[name]; before == 0 || after != before+1 {
		t.Errorf("%v before the reload, %v after it", before, after)
	}
}

// fakeCache stands for a cache of expansions.
type fakeCache struct {
	statistics  dispatch.Statistics
	url, system string
}

func (*fakeCache) Destruct() error { return nil }

func (c *fakeCache) End(e dispatch.Ending) int {
	c.url, c.system = e.ValueSet, e.CodeSystem
	return c.statistics.Entries
}

func (c *fakeCache) Statistics() dispatch.Statistics { return c.statistics }

// addCache puts a cache where the metrics and the admin API look for them.
func addCache(t *testing.T, key string, c *fakeCache) {
	t.Helper()
	expand.Caches.LoadOrStore(key, c)
	t.Cleanup(func() {
		if _, err := expand.Caches.Delete(key); err != nil {
			t.Error(err)
		}
	})
}

func TestCacheMetrics(t *testing.T) {
	g := exampleGateway(t, nil)
	before := g.series()
	addCache(t, "a", &fakeCache{statistics: dispatch.Statistics{Hits: 1, Misses: 2, Stale: 3, Evictions: 4, Entries: 5, Bytes: 6}})
	addCache(t, "b", &fakeCache{statistics: dispatch.Statistics{Hits: 10, Misses: 20, Stale: 30, Evictions: 40, Entries: 50, Bytes: 60, PulledBytes: 70}})
	got := g.series()
	for name, want := range map[string]float64{
		"caddy_fhir_expansion_cache_requests_total result=hit":   11,
		"caddy_fhir_expansion_cache_requests_total result=miss":  22,
		"caddy_fhir_expansion_cache_requests_total result=stale": 33,
		"caddy_fhir_expansion_cache_evictions_total":             44,
		"caddy_fhir_expansion_cache_entries":                     55,
		"caddy_fhir_expansion_cache_bytes":                       66,
		"caddy_fhir_expansion_pulled_bytes":                      70,
	} {
		if more := got[name] - before[name]; more != want {
			t.Errorf("%s: %v more, want %v", name, more, want)
		}
	}
}

// Counters of a cache go on when a reload, with other settings, makes another one.
func TestCacheCountersGoOn(t *testing.T) {
	address := gatewaytest.Backend(t, newScripted("good"))
	g := newGateway(t, frontCaddyfile("ttl 1h", address))
	for range 3 {
		gatewaytest.Read(t, g.askFor(foreign, ""))
	}
	before := g.series()
	if err := gatewaytest.HandlerOf[*expand.Expand](t, g.Context).Cleanup(); err != nil {
		t.Fatal(err)
	}
	after := newGateway(t, frontCaddyfile("ttl 2h", address)).series()
	for name, want := range before {
		if strings.Contains(name, "expansion_cache_requests") && after[name] < want {
			t.Errorf("%s: %v, and before %v", name, after[name], want)
		}
	}
	if before["caddy_fhir_expansion_cache_requests_total result=hit"] < 2 {
		t.Error("there were no hits")
	}
}

// preflight asks as a browser does before a script's request.
func (g *gateway) preflight(path, origin string) *http.Response {
	return g.Ask(http.MethodOptions, path, "", "Origin", origin, "Access-Control-Request-Method", http.MethodGet, "Access-Control-Request-Headers", "authorization")
}

// The stores and the guard's memory are exported with their limits.
func TestCapacityMetrics(t *testing.T) {
	g := exampleGateway(t, nil)
	app, err := fhirbase.Find[*App](g.Context)
	if err == nil {
		err = app.startStores()
	}
	if err != nil {
		t.Fatal(err)
	}
	before := g.series()
	for name, want := range map[string]float64{
		"caddy_fhir_store_max_entries store=file": 1_000_000, "caddy_fhir_store_max_entries store=memory": 100_000,
		"caddy_fhir_bearer_memory_bytes": 0, "caddy_fhir_bearer_max_memory_bytes": 256 << 20,
	} {
		if got, measured := before[name]; got != want || !measured {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	g.Code()
	if after := g.series(); after["caddy_fhir_store_entries store=file"] <= before["caddy_fhir_store_entries store=file"] {
		t.Errorf("%v entries after a sign-in, %v before", after["caddy_fhir_store_entries store=file"], before["caddy_fhir_store_entries store=file"])
	}
}
