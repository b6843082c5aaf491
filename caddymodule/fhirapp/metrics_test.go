package fhirapp

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/expand"
	"github.com/caddy-fhir/caddy-fhir/terminology/dispatch"
)

// series returns the values of the gateway's metrics as in a scrape. For a histogram, the value is the number of observations.
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
		want []string // counters that must increase by one
	}{
		{"a sign-in", func() { g.Cookies = map[string]string{}; g.Code() }, []string{
			"caddy_fhir_authorization_events_total grant= kind=sign-in outcome=success",
			"caddy_fhir_authorization_events_total grant=code kind=authorization outcome=success",
			"caddy_fhir_endpoint_duration_seconds endpoint=authorize",
			"caddy_fhir_endpoint_duration_seconds endpoint=login", "caddy_fhir_endpoint_duration_seconds endpoint=login",
		}},
		{"unknown grant type", func() { g.Post("/oauth2/token", url.Values{"grant_type": {"anything"}, "client_id": {"demo-app"}}) }, []string{
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
					continue // counters are global, and background work of another test may increase this one
				}
				if strings.HasPrefix(name, "caddy_fhir_store_entries") {
					continue // a gauge, checked by TestCapacityMetrics
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

// The registry of each configuration contains the metrics, and their values survive reloads. Neither a reload nor a second
// handler registers them twice.
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

// fakeCache is a fake cache of expansions.
type fakeCache struct {
	statistics  dispatch.Statistics
	url, system string
}

func (*fakeCache) Destruct() error { return nil }

func (c *fakeCache) ApplyInvalidation(e dispatch.Invalidation) int {
	c.url, c.system = e.ValueSet, e.CodeSystem
	return c.statistics.Entries
}

func (c *fakeCache) Statistics() dispatch.Statistics { return c.statistics }

// addCache registers a cache for the metrics and the admin API.
func addCache(t *testing.T, key string, c *fakeCache) {
	t.Helper()
	expand.CachePool.LoadOrStore(key, c)
	t.Cleanup(func() {
		if _, err := expand.CachePool.Delete(key); err != nil {
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

// The counters of a cache continue when a reload with different settings creates a new cache.
func TestCacheCountersContinue(t *testing.T) {
	address := gatewaytest.Backend(t, newScriptedServer("good"))
	g := newGateway(t, frontCaddyfile("ttl 1h", address))
	for range 3 {
		gatewaytest.ReadBody(t, g.expandAs(foreign, ""))
	}
	before := g.series()
	if err := gatewaytest.FindHandler[*expand.Expand](t, g.Context).Cleanup(); err != nil {
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

// preflight sends a CORS preflight request as a browser would.
func (g *gateway) preflight(path, origin string) *http.Response {
	return g.Do(http.MethodOptions, path, "", "Origin", origin, "Access-Control-Request-Method", http.MethodGet, "Access-Control-Request-Headers", "authorization")
}

// The number of entries and the capacity of the stores and of the guard's cache are exported.
func TestCapacityMetrics(t *testing.T) {
	g := exampleGateway(t, nil)
	app, err := fhirbase.FindApp[*App](g.Context)
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

const observeFolder = "../../docs/examples/observe/"

// A panel is a panel of the dashboard.
type panel struct {
	Type, Title string
	Targets     []struct{ Expr string }
}

// readPanels returns the rows and the panels of the dashboard.
func readPanels(t *testing.T) (rows []string, panels []panel) {
	t.Helper()
	var dashboard struct{ Panels []panel }
	if err := json.Unmarshal([]byte(gatewaytest.ReadFile(t, observeFolder+"dashboard.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, p := range dashboard.Panels {
		if p.Type == "row" {
			rows = append(rows, p.Title)
		} else {
			panels = append(panels, p)
		}
	}
	return rows, panels
}

// observedGateway starts a gateway and sends requests, so that all metrics exist.
func observedGateway(t *testing.T) *gateway {
	t.Helper()
	newTestServer(t)
	backend := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/fhir+json")
		if strings.Contains(r.URL.Path, "$expand") {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, `{"resourceType":"Patient","id":"1"}`)
	})
	g := exampleGateway(t, backend,
		"{\n\tadmin", "{\n\tmetrics\n\tadmin",
		"fhir {", "fhir {\n\t\tidp observed {\n\t\t\tissuer https://login.hospital.example\n\t\t\tclient_id x\n\t\t}\n\t\tstore test_shared {\n\t\t\tserver "+t.Name()+"\n\t\t\tgateway observed\n\t\t}")
	app, err := g.Context.App("fhir")
	if err != nil {
		t.Fatal(err)
	}
	if err := app.(*App).startStores(); err != nil {
		t.Fatal(err)
	}
	g.use()
	return g
}

// use sends requests that change the metrics shown in the panels.
func (g *gateway) use() {
	g.Gateway = g.NewBrowser()
	token := g.Token()
	g.Post("/oauth2/token", url.Values{"grant_type": {"anything"}, "client_id": {"demo-app"}})
	g.Post("/oauth2/revoke", url.Values{"token": {token}, "client_id": {"demo-app"}})
	g.Gateway = g.NewBrowser()
	token = g.Token()
	for _, path := range []string{"/Patient/1", "/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/administrative-gender", "/ValueSet/$expand?url=" + unlisted} {
		gatewaytest.ReadBody(g.t, g.Get("/fhir/R4"+path, token))
		gatewaytest.ReadBody(g.t, g.Get("/fhir/R4"+path, ""))
	}
}

// labelsOf returns the labels of each of the gateway's series, by the metric name used in queries.
func (g *gateway) labelsOf() map[string][]string {
	g.t.Helper()
	families, err := g.Context.GetMetricsRegistry().Gather()
	if err != nil {
		g.t.Fatal(err)
	}
	all := map[string][]string{"up": nil}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				labels = append(labels, label.GetName())
			}
			name := family.GetName()
			if all[name] = labels; metric.GetHistogram() != nil {
				delete(all, name)
				all[name+"_count"], all[name+"_sum"], all[name+"_bucket"] = labels, labels, append(labels, "le")
			}
		}
	}
	return all
}

var (
	selector = regexp.MustCompile(`\b(caddy_\w+|up)(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`(\w+)(?:=~|!~|!=|=)"([^"]*)"`)
	grouping = regexp.MustCompile(`\bby \(([^)]*)\)`)
)

// checkQuery checks that the metrics and labels in a query exist and that docs/reference lists the label values.
func checkQuery(t *testing.T, about, query string, existing map[string][]string, documented string) {
	t.Helper()
	found := selector.FindAllStringSubmatch(query, -1)
	if len(found) == 0 {
		t.Errorf("%s asks for no metric: %s", about, query)
	}
	labels := []string{"job", "instance"}
	for _, s := range found {
		of, ok := existing[s[1]]
		if !ok {
			t.Errorf("%s: metric %s not found", about, s[1])
		}
		labels = append(labels, of...)
		for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
			checkMatcher(t, about+": "+s[1], m, of, strings.HasPrefix(s[1], "caddy_fhir_"), documented)
		}
	}
	for _, by := range grouping.FindAllStringSubmatch(query, -1) {
		for label := range strings.SplitSeq(by[1], ",") {
			if !slices.Contains(labels, strings.TrimSpace(label)) {
				t.Errorf("%s: no metric has the label %s", about, label)
			}
		}
	}
}

func checkMatcher(t *testing.T, about string, m, labels []string, ours bool, documented string) {
	t.Helper()
	if m[1] == "job" || m[1] == "instance" {
		return
	}
	if !slices.Contains(labels, m[1]) {
		t.Errorf("%s has no label %s", about, m[1])
	}
	for value := range strings.SplitSeq(m[2], "|") {
		if ours && !strings.Contains(documented, "`"+value+"`") {
			t.Errorf("%s: %s is never %s", about, m[1], value)
		}
	}
}

// runbookLink matches an alert's link to a heading of a page.
var runbookLink = regexp.MustCompile(`(?m)/blob/main/(docs/\S+\.md)#(\S+)$`)

// featureMetrics maps the dashboard metrics that features add to their labels. The tests of each feature test its metrics.
var featureMetrics = map[string][]string{
	"caddy_fhir_quota_refusals_total": {"quota"}, "caddy_fhir_roster_entries": {"kind"}, "caddy_fhir_roster_max_entries": {"kind"},
}

// The dashboard and the alerts use existing metrics, labels and values. The alerts link to existing headings.
func TestDashboardAndAlerts(t *testing.T) {
	existing, documented := observedGateway(t).labelsOf(), gatewaytest.ReadFile(t, "../../docs/reference/metrics.md")+gatewaytest.ReadFile(t, "../../docs/reference/audit-log.md")
	existing["caddy_config_last_reload_successful"] = nil // Caddy registers this metric only when it runs as a process
	maps.Copy(existing, featureMetrics)
	rows, panels := readPanels(t)
	if want := []string{"Sign-ins", "Tokens", "Guard", "$expand", "Store", "Backend", "Audit"}; !slices.Equal(rows, want) {
		t.Errorf("rows %q", rows)
	}
	for _, p := range panels {
		for _, target := range p.Targets {
			checkQuery(t, p.Title, target.Expr, existing, documented)
		}
	}
	alerts := gatewaytest.ReadFile(t, observeFolder+"alerts.yaml")
	tests := gatewaytest.ReadFile(t, observeFolder+"alerts_test.yaml")
	list := strings.Split(alerts, "- alert: ")[1:]
	for _, text := range list {
		name, rest, _ := strings.Cut(text, "\n")
		query, _, _ := strings.Cut(rest, "labels:")
		checkQuery(t, name, query, existing, documented)
		if link := runbookLink.FindStringSubmatch(rest); link == nil {
			t.Errorf("%s has no link to a page in docs", name)
		} else if !slices.Contains(gatewaytest.Anchors(gatewaytest.ReadFile(t, "../../"+link[1])), link[2]) {
			t.Errorf("%s leads to %q of %s", name, link[2], link[1])
		}
		if strings.Count(tests, "alertname: "+name+"\n") != 2 {
			t.Errorf("alerts_test.yaml does not try that %s fires and does not", name)
		}
	}
	if len(panels) < 25 || len(list) < 15 {
		t.Errorf("%d panels, %d alerts", len(panels), len(list))
	}
}

// inGrafana replaces the dashboard's variables as Grafana does. It removes "> 0", which hides providers that were never
// checked, because the test's provider is one of them.
var inGrafana = strings.NewReplacer("$__rate_interval", "10s", `"$job"`, `".*"`, `"$instance"`, `".*"`, " > 0)", ")")

var prometheusProgram = flag.String("prometheus", "", "a program of Prometheus, which answers the dashboard's queries")

// Prometheus returns series for the query of each panel after it has scraped a gateway. The test requires -prometheus.
func TestPrometheusAnswersDashboard(t *testing.T) {
	if *prometheusProgram == "" {
		t.Skip("without -prometheus")
	}
	g := observedGateway(t)
	scraped := httptest.NewServer(promhttp.HandlerFor(g.Context.GetMetricsRegistry(), promhttp.HandlerOpts{EnableOpenMetrics: true}))
	t.Cleanup(scraped.Close)
	address := startPrometheus(t, *prometheusProgram, strings.TrimPrefix(scraped.URL, "http://"))
	_, panels := readPanels(t)
	deadline := time.Now().Add(time.Minute)
	for _, p := range panels {
		for _, target := range p.Targets {
			query := inGrafana.Replace(target.Expr)
			for g.use(); ; g.use() { // rate() needs a counter that increases between two scrapes
				series, err := askPrometheus(t.Context(), address, query)
				if series > 0 || err == nil && isFeatureMetric(target.Expr) {
					break
				}
				if time.Now().After(deadline) || err != nil && !errors.Is(err, errStarting) && !errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("%s: %d series, %v: %s", p.Title, series, err, query)
					break
				}
			}
		}
	}
}

// isFeatureMetric reports whether a query uses a metric that this test's gateway does not export.
func isFeatureMetric(query string) bool {
	for name := range featureMetrics {
		if strings.Contains(query, name) {
			return true
		}
	}
	return false
}

// startPrometheus starts Prometheus, which scrapes a target twice a second, and returns its address.
func startPrometheus(t *testing.T, program, target string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address, folder := listener.Addr().String(), t.TempDir()
	config := filepath.Join(folder, "prometheus.yml")
	gatewaytest.ReplaceFile(t, config, fmt.Sprintf("global: {scrape_interval: 500ms}\nscrape_configs: [{job_name: caddy-fhir, static_configs: [{targets: ['%s']}]}]\n", target))
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(folder, "data"), "--web.listen-address="+address, "--log.level=error")
	cmd.Cancel, cmd.Stderr = func() error { return cmd.Process.Signal(os.Interrupt) }, t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(); _ = cmd.Wait() })
	return address
}

var errStarting = errors.New("prometheus is starting")

// askPrometheus returns the number of series in the result of a query.
func askPrometheus(ctx context.Context, address, query string) (series int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/api/v1/query?query="+url.QueryEscape(query), nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusServiceUnavailable {
		return 0, errStarting
	}
	var answer struct {
		Error string
		Data  struct{ Result []json.RawMessage }
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return 0, err
	}
	if answer.Error != "" {
		err = fmt.Errorf("prometheus: %s", answer.Error)
	}
	return len(answer.Data.Result), err
}
