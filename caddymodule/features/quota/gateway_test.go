package quota

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/authorization"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/expand"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/outcome"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/file"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/memory"
)

// Tests that compare metrics before and after a request do not run in parallel.
func TestMain(m *testing.M) { os.Exit(gatewaytest.Main(m)) }

var update = flag.Bool("update", false, "write the golden file anew")

func TestAdapt(t *testing.T) {
	t.Parallel()
	gatewaytest.CheckGolden(t, "testdata/adapt.caddyfiletest", *update)
}

// Caddyfile errors contain the line number and the invalid word.
func TestCaddyfileErrors(t *testing.T) {
	t.Parallel()
	app := gatewaytest.AppCaddyfile
	gatewaytest.CaddyfileErrors{
		{"without a window", app("quota apps client 1000"), 4, "quota apps client 1000 1m"},
		{"unknown holder kind", app("quota apps ip 1000 1m"), 4, "is not client, person or network"},
		{"of none", app("quota apps client 0 1m"), 4, "0"},
		{"with a window in parts of a second", app("quota apps client 10 1500ms"), 4, "whole seconds"},
		{"twice", app("quota apps client 10 1m\n\t\tquota apps person 10 1m"), 5, "duplicate quota apps"},
		{"that counts an unknown thing", app("quota apps client 10 1m {\n\t\t\tcount expand\n\t\t}"), 6, "an operation such as $expand"},
		{"with a cost in words", app("quota apps client 10 1m {\n\t\t\tcount $expand dear\n\t\t}"), 5, "dear"},
		{"that counts twice", app("quota apps client 10 1m {\n\t\t\tcount request\n\t\t\tcount request 2\n\t\t}"), 6, "duplicate count request"},
		{"of people's tokens", app("quota apps person 10 1m {\n\t\t\tcount token\n\t\t}"), 6, "the person is not yet identified"},
	}.Check(t)
}

type gateway struct {
	*gatewaytest.Gateway
	t *testing.T
}

// gatewayWithQuota starts the example gateway with an additional quota and a backend that returns a patient.
func gatewayWithQuota(t *testing.T, name, options string) *gateway {
	t.Helper()
	quotas := "\t\tquota " + name + " " + options + "\n" // gateways in this process share counts by name
	return &gateway{gatewaytest.Example(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/fhir+json")
		if r.Method == http.MethodPost {
			_, _ = io.WriteString(w, `{"resourceType":"Bundle","type":"batch-response","entry":[{"response":{"status":"200"}},{"response":{"status":"200"}},{"response":{"status":"200"}}]}`)
			return
		}
		_, _ = io.WriteString(w, `{"resourceType":"Patient","id":"1"}`)
	}), "\t\tfhir_base /fhir/R4\n", "\t\tfhir_base /fhir/R4\n"+quotas), t}
}

// series returns the metrics of the gateway by name and labels.
func (g *gateway) series() map[string]float64 {
	g.t.Helper()
	families, err := g.Context.GetMetricsRegistry().Gather()
	if err != nil {
		g.t.Fatal(err)
	}
	all := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			name := family.GetName()
			for _, label := range metric.GetLabel() {
				name += " " + label.GetName() + "=" + label.GetValue()
			}
			all[name] = metric.GetCounter().GetValue()
		}
	}
	return all
}

// statuses sends n requests. It returns the last response and the number of responses for each status.
func (g *gateway) statuses(n int, ask func() *http.Response) (last *http.Response, counts string) {
	found := map[int]int{}
	for range n {
		last = ask()
		found[last.StatusCode]++
	}
	return last, fmt.Sprint(found)
}

func (g *gateway) ask(method, path, token, body string) *http.Response {
	var headers []string
	if token != "" {
		headers = append(headers, "Authorization", "Bearer "+token)
	}
	if body != "" {
		headers = append(headers, "Content-Type", "application/fhir+json")
	}
	return g.Do(method, path, body, headers...)
}

// A client, person or network over its quota gets 429 with Retry-After.
func TestQuotaOfRequests(t *testing.T) {
	for _, by := range []string{"client", "person", "network"} {
		g := gatewayWithQuota(t, "some-"+by, by+" 3 1h")
		token := g.Token()
		before := g.series()
		last, counts := g.statuses(5, func() *http.Response { return g.ask(http.MethodGet, "/fhir/R4/Patient/1", token, "") })
		if counts != "map[200:3 429:2]" {
			t.Errorf("%s: %s", by, counts)
		}
		h := last.Header
		if policy, field := h.Get("RateLimit-Policy"), h.Get("RateLimit"); policy != `"some-`+by+`";q=3;w=3600` || field != `"some-`+by+`";r=0;t=`+h.Get("Retry-After") {
			t.Errorf("%s: %s, %s, Retry-After %s", by, policy, field, h.Get("Retry-After"))
		}
		outcome := g.DecodeOutcome(last)
		if outcome.Code != "throttled" || !strings.HasPrefix(outcome.Diagnostics, "The quota some-"+by+" of this "+by+" is exceeded. Try again in 3") {
			t.Errorf("%s: %+v", by, outcome)
		}
		after := g.series()
		for name, want := range map[string]float64{
			"caddy_fhir_quota_refusals_total quota=some-" + by:                           2,
			"caddy_fhir_bearer_decisions_total outcome=throttled":                        2,
			"caddy_fhir_authorization_events_total grant= kind=access outcome=throttled": 1, // logged once a minute
		} {
			if got := after[name] - before[name]; got != want {
				t.Errorf("%s: %s rose by %v", by, name, got)
			}
		}
		if status := g.ask(http.MethodGet, "/fhir/R4/metadata", "", "").StatusCode; (status == http.StatusTooManyRequests) != (by == "network") {
			t.Errorf("%s: who has no token gets %d", by, status)
		}
	}
}

// Only the configured kinds of requests are counted, at their cost. The entries of a batch are counted after the response.
func TestQuotaCounts(t *testing.T) {
	batch := `{"resourceType":"Bundle","type":"batch","entry":[` + strings.Repeat(`{"request":{"method":"GET","url":"Patient/1"}},`, 2) + `{"request":{"method":"GET","url":"Patient/1"}}]}`
	for name, test := range map[string]struct {
		counts, method, path, body string
		want                       string // statuses of ten requests
	}{
		"each request":             {"", "GET", "/fhir/R4/Patient/1", "", "map[200:10]"},
		"only the named operation": {" {\n\t\t\tcount $expand\n\t\t}", "GET", "/fhir/R4/Patient/1", "", "map[200:10]"},
		"at its cost":              {" {\n\t\t\tcount request 4\n\t\t}", "GET", "/fhir/R4/Patient/1", "", "map[200:2 429:8]"},
		"an operation":             {" {\n\t\t\tcount $expand 5\n\t\t}", "GET", "/fhir/R4/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/administrative-gender", "", "map[200:2 429:8]"},
		"a batch":                  {"", "POST", "/fhir/R4", batch, "map[200:3 429:7]"},
	} {
		g := gatewayWithQuota(t, "counts-"+strings.ReplaceAll(strings.ReplaceAll(name, " ", "-"), "'", ""), "client 10 1h"+test.counts)
		token := g.RequestToken(url.Values{
			"grant_type": {"client_credentials"}, "client_id": {"demo-service"}, "client_secret": {"demo-service-secret"}, "scope": {"system/*.rs"},
		})
		last, got := g.statuses(10, func() *http.Response {
			r := g.ask(test.method, test.path, token, test.body)
			if hasPolicy := r.Header.Get("RateLimit-Policy") != ""; hasPolicy != (name != "only the named operation") {
				t.Errorf("%s: %d with %v", name, r.StatusCode, r.Header)
			}
			return r
		})
		if got != test.want {
			t.Errorf("%s: %s, at last %s", name, got, gatewaytest.ReadBody(t, last))
		}
	}
}

// The token endpoint returns an OAuth error when a quota is exceeded. A public client is counted separately in each network.
func TestQuotaOfTokens(t *testing.T) {
	for by, want := range map[string]string{"client": "map[200:2 429:2]", "network": "map[200:2 429:2]"} {
		g := gatewayWithQuota(t, "tokens-"+by, by+" 2 1h {\n\t\t\tcount token\n\t\t}")
		last, counts := g.statuses(4, func() *http.Response {
			return g.Post("/oauth2/token", url.Values{
				"grant_type": {"client_credentials"}, "client_id": {"demo-service"}, "client_secret": {"demo-service-secret"}, "scope": {"system/*.rs"},
			})
		})
		var refusal struct {
			Error       string `json:"error"`
			Description string `json:"error_description"`
		}
		if err := json.Unmarshal([]byte(gatewaytest.ReadBody(t, last)), &refusal); err != nil || refusal.Error != "temporarily_unavailable" {
			t.Errorf("%s: %v %+v", by, err, refusal)
		}
		if counts != want || last.Header.Get("Retry-After") == "" || last.Header.Get("RateLimit") == "" || strings.Contains(refusal.Description, `"`) {
			t.Errorf("%s: %s %v %+v", by, counts, last.Header, refusal)
		}
	}
}

// A public client is counted separately in each network, so that others who send its client_id cannot use up its quota.
func TestQuotaOfPublicClient(t *testing.T) {
	g := gatewayWithQuota(t, "public", "client 2 1h {\n\t\t\tcount token\n\t\t}")
	from := func(address string) int {
		r := httptest.NewRequest(http.MethodPost, "/oauth2/token", strings.NewReader("grant_type=authorization_code&code=guessed&client_id=demo-app"))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.RemoteAddr = address + ":1234"
		return g.Send(r).StatusCode
	}
	for range 5 {
		from("192.0.2.66")
	}
	if status := from("192.0.2.66"); status != http.StatusTooManyRequests {
		t.Errorf("who guesses gets %d", status)
	}
	if status := from("198.51.100.1"); status != http.StatusBadRequest {
		t.Errorf("another network gets %d", status)
	}
}

// Counts survive a reload, even if the limit changes.
func TestQuotaOverReload(t *testing.T) {
	read := func(g *gateway, token string) int {
		return g.ask(http.MethodGet, "/fhir/R4/Patient/1", token, "").StatusCode
	}
	first := gatewayWithQuota(t, "reloaded", "network 3 1h")
	for range 3 {
		read(first, "")
	}
	if status := read(gatewayWithQuota(t, "reloaded", "network 3 1h"), ""); status != http.StatusTooManyRequests {
		t.Errorf("after a reload: %d", status)
	}
	if status := read(gatewayWithQuota(t, "reloaded", "network 4 1h"), ""); status != http.StatusUnauthorized {
		t.Errorf("with a larger limit: %d", status)
	}
}

// sharedServer is the store of [testStore].
var sharedServer = storetest.NewSharedMemory(stores.SubscribedKinds()...)

// testStore is a store module for gateways that share a store.
type testStore struct{ stores.Shared }

func init() { caddy.RegisterModule(new(testStore)) }

func (*testStore) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.stores.test_quota", New: func() caddy.Module { return new(testStore) }}
}

func (*testStore) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	return nil
}

func (s *testStore) Provision(caddy.Context) error {
	return s.Open("test_quota", "", func(*slog.Logger) (*stores.Remote, error) {
		return &stores.Remote{
			SharedStore: sharedServer.Gateway(), Check: func(context.Context) error { return nil }, Close: func() error { return nil },
			CountConnections: func() (open, used int) { return 0, 0 },
		}, nil
	})
}

// Gateways with a shared store count together.
func TestQuotaOverGateways(t *testing.T) {
	g := gatewaytest.New(t, gatewaytest.AuthorizationServer("store test_quota\n\t\tquota together network 40 1h"))
	running, err := g.Context.App("fhir")
	if err != nil {
		t.Fatal(err)
	}
	app := running.(*fhirapp.App)
	if err := app.Keys().Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	both := []*Set{app.Features()[0].(*App).set, NewSet( // separate counts, as in another process
		[]Quota{{Name: "together", HolderKind: Network, Limit: 40, Window: caddy.Duration(time.Hour)}}, NewCounts(),
		&Shared{Store: sharedServer.Gateway(), Keys: app.Keys()}, func(string) {})}
	admitted := 0
	for i := range 100 {
		if both[i%2].Consume(t.Context(), http.Header{}, Network, "192.0.2.1", Request) == nil {
			admitted++
		}
	}
	if admitted < 38 || admitted > 42 {
		t.Errorf("%d of 40", admitted)
	}
}

// A guard without the fhir app applies its own quotas. With the app, the option is an error that refers to the fhir block.
func TestQuotaOfGuardAlone(t *testing.T) {
	issuer := gatewaytest.NewIssuer(t)
	g := &gateway{gatewaytest.New(t, "{\n\tadmin off\n\tauto_https off\n}\n\nhttp://localhost:8443 {\n\troute {\n\t\tfhir_bearer {\n\t\t\tscopes off\n\t\t\ttrust "+issuer.URL+
		" fhir\n\t\t\tquota alone person 3 1h\n\t\t}\n\t\trespond ok\n\t}\n}\n"), t}
	token := issuer.Token(t, "fhir")
	last, counts := g.statuses(5, func() *http.Response { return g.ask(http.MethodGet, "/fhir/R4/Patient/1", token, "") })
	if counts != "map[200:3 429:2]" || last.Header.Get("Retry-After") == "" || g.DecodeOutcome(last).Code != "throttled" {
		t.Errorf("%s %v", counts, last.Header)
	}
	_, err := gatewaytest.Provision(t, gatewaytest.Adapt(t, gatewaytest.ExampleText(t, "\t\tfhir_bearer\n", "\t\tfhir_bearer {\n\t\t\tquota alone person 3 1h\n\t\t}\n")))
	if err == nil || !strings.Contains(err.Error(), "set this option in the block fhir") {
		t.Errorf("with the app: %v", err)
	}
}
