package fhirapp

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

const observeFolder = "../../docs/examples/observe/"

// A panel is one of the dashboard.
type panel struct {
	Type, Title string
	Targets     []struct{ Expr string }
}

// readPanels reads the dashboard: its rows, and what its panels ask.
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

// observedGateway is a gateway that has all metrics, after some requests.
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

// use does what the panels show.
func (g *gateway) use() {
	g.Gateway = g.NewBrowser()
	token := g.Token()
	g.Post("/oauth2/token", url.Values{"grant_type": {"anything"}, "client_id": {"demo-app"}})
	g.Post("/oauth2/revoke", url.Values{"token": {token}, "client_id": {"demo-app"}})
	g.Gateway = g.NewBrowser()
	token = g.Token()
	for _, path := range []string{"/Patient/1", "/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/administrative-gender", "/ValueSet/$expand?url=" + unlisted} {
		gatewaytest.Read(g.t, g.Get("/fhir/R4"+path, token))
		gatewaytest.Read(g.t, g.Get("/fhir/R4"+path, ""))
	}
}

// labelsOf are the labels of each series that a gateway has, by the name that queries give it.
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

// checkQuery checks that a query names metrics and labels that there are, and values that docs/operation.md lists.
func checkQuery(t *testing.T, about, query string, known map[string][]string, documented string) {
	t.Helper()
	found := selector.FindAllStringSubmatch(query, -1)
	if len(found) == 0 {
		t.Errorf("%s asks for no metric: %s", about, query)
	}
	labels := []string{"job", "instance"}
	for _, s := range found {
		of, ok := known[s[1]]
		if !ok {
			t.Errorf("%s: there is no metric %s", about, s[1])
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

// featureMetrics are the labels of the metrics in the dashboard that come from features. Each feature tests its own.
var featureMetrics = map[string][]string{
	"caddy_fhir_quota_refusals_total": {"quota"}, "caddy_fhir_roster_entries": {"kind"}, "caddy_fhir_roster_max_entries": {"kind"},
}

// The dashboard and the alerts ask for metrics, labels and values that there are, and the alerts lead to headings.
func TestDashboardAndAlerts(t *testing.T) {
	known, documented := observedGateway(t).labelsOf(), gatewaytest.ReadFile(t, "../../docs/operation.md")
	known["caddy_config_last_reload_successful"] = nil // Caddy registers it when it runs
	maps.Copy(known, featureMetrics)
	rows, panels := readPanels(t)
	if want := []string{"Sign-ins", "Tokens", "Guard", "$expand", "Store", "Backend", "Audit"}; !slices.Equal(rows, want) {
		t.Errorf("rows %q", rows)
	}
	for _, p := range panels {
		for _, target := range p.Targets {
			checkQuery(t, p.Title, target.Expr, known, documented)
		}
	}
	alerts := gatewaytest.ReadFile(t, observeFolder+"alerts.yaml")
	tests := gatewaytest.ReadFile(t, observeFolder+"alerts_test.yaml")
	list := strings.Split(alerts, "- alert: ")[1:]
	for _, text := range list {
		name, rest, _ := strings.Cut(text, "\n")
		query, _, _ := strings.Cut(rest, "labels:")
		checkQuery(t, name, query, known, documented)
		_, anchor, _ := strings.Cut(rest, "/blob/main/docs/operation.md#")
		if anchor, _, _ = strings.Cut(anchor, "\n"); !slices.Contains(gatewaytest.Anchors(documented), anchor) {
			t.Errorf("%s leads to %q", name, anchor)
		}
		if strings.Count(tests, "alertname: "+name+"\n") != 2 {
			t.Errorf("alerts_test.yaml does not try that %s fires and does not", name)
		}
	}
	if len(panels) < 25 || len(list) < 15 {
		t.Errorf("%d panels, %d alerts", len(panels), len(list))
	}
}
