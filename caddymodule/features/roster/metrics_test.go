package roster

import (
	"net/http"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/roster/entry"
)

// gauges are the values of a gateway's metric by kind, as a scrape shows them.
func (g rosterGateway) gauges(name string) map[string]float64 {
	g.t.Helper()
	families, err := g.Context.GetMetricsRegistry().Gather()
	if err != nil {
		g.t.Fatal(err)
	}
	byKind := map[string]float64{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			byKind[metric.GetLabel()[0].GetValue()] = metric.GetGauge().GetValue()
		}
	}
	return byKind
}

// Entries in the store of a started gateway are exported with their limit.
func TestCapacityMetrics(t *testing.T) {
	g := example(t, nil)
	app := g.app()
	if err := app.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := app.Stop(); err != nil {
			t.Error(err)
		}
	}()
	before := g.gauges("caddy_fhir_roster_entries")
	for _, kind := range []string{"clients", "users"} {
		if got := g.gauges("caddy_fhir_roster_max_entries")[kind]; got != entry.MaxEntries {
			t.Errorf("%s: the limit is %v", kind, got)
		}
	}
	if _, status := g.ask(http.MethodPost, clientsPath, storedClientJSON); status != http.StatusOK {
		t.Fatal(status)
	}
	defer g.remove(clientsPath + "/growth-chart")
	after := g.gauges("caddy_fhir_roster_entries")
	if after["clients"] != before["clients"]+1 || after["users"] != before["users"] {
		t.Errorf("%v after %v", after, before)
	}
}
