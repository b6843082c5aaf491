package fhirapp

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// inGrafana replaces the dashboard's variables as Grafana does. It drops "> 0", which hides providers that were not
// checked yet: the test's provider never is.
var inGrafana = strings.NewReplacer("$__rate_interval", "10s", `"$job"`, `".*"`, `"$instance"`, `".*"`, " > 0)", ")")

var prometheusProgram = flag.String("prometheus", "", "a program of Prometheus, which answers the dashboard's queries")

// Prometheus answers each panel's query from what it scraped of a gateway. It needs that program, as in .ci/run.
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
			for g.use(); ; g.use() { // rates need a counter that rises between two scrapes
				series, err := askPrometheus(t.Context(), address, query)
				if series > 0 || err == nil && ofFeature(target.Expr) {
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

// ofFeature reports whether a query is about a metric that this test's gateway does not have.
func ofFeature(query string) bool {
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
	gatewaytest.Put(t, config, fmt.Sprintf("global: {scrape_interval: 500ms}\nscrape_configs: [{job_name: caddy-fhir, static_configs: [{targets: ['%s']}]}]\n", target))
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

// askPrometheus returns how many series answer a query.
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
