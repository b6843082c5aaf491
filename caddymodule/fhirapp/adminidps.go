package fhirapp

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revalidation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/metrics"
)

const idpsPath = "/fhir/idps"

// listIDPs returns the state of each identity provider.
func listIDPs(server *authorize.Server, r *http.Request) (any, error) {
	states, err := server.ProviderStates(r.Context())
	if states == nil {
		states = []revalidation.ProviderState{}
	}
	return states, err
}

// acceptDenials serves POST /fhir/idps/{idp}/accept. It lifts the suspension, so that the provider's denials take effect.
func acceptDenials(server *authorize.Server, r *http.Request) (any, error) {
	key, ok := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, idpsPath+"/"), "/accept")
	if !ok || key == "" || len(r.URL.RawQuery) > 0 {
		return nil, caddy.APIError{HTTPStatus: http.StatusNotFound, Err: errors.New("use " + idpsPath + "/{idp}/accept")}
	}
	err := server.AcceptDenials(r.Context(), key)
	switch {
	case errors.Is(err, authorize.ErrUnknownProvider):
		err = caddy.APIError{HTTPStatus: http.StatusNotFound, Err: err}
	case errors.Is(err, authorize.ErrNotSuspended):
		err = caddy.APIError{HTTPStatus: http.StatusConflict, Err: err}
	}
	return map[string]string{"accepted": key}, err
}

// startedApps contains the started apps: two during a reload, otherwise one. Their metrics are collected. Apps that were only
// provisioned are excluded, because reading their metrics would create the file of the durable store.
var startedApps sync.Map

// providerCollector collects the metrics of identity providers.
type providerCollector struct{}

var (
	idpSuspended = prometheus.NewDesc("caddy_fhir_idp_suspended", "1 while an identity provider is suspended because it denies nearly all users, otherwise 0.", []string{"idp"}, nil)
	idpLastCheck = prometheus.NewDesc("caddy_fhir_idp_checked_timestamp_seconds", "Unix time of this gateway's last revalidation with an identity provider, by result; 0 before the first.", []string{"idp", "result"}, nil)
	_            = metrics.Add(providerCollector{})
)

// collectTimeout is the maximum time that the collector waits for a store.
const collectTimeout = time.Second

// Describe implements [prometheus.Collector].
func (providerCollector) Describe(to chan<- *prometheus.Desc) {
	to <- idpSuspended
	to <- idpLastCheck
}

// Collect implements [prometheus.Collector].
func (providerCollector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	byKey := map[string]revalidation.ProviderState{}
	ForEachStarted(func(app *App) {
		states, _ := app.Server().ProviderStates(ctx) // the store's metrics include its errors
		for _, state := range states {
			byKey[state.Key] = state
		}
	})
	for key, state := range byKey {
		to <- prometheus.MustNewConstMetric(idpSuspended, prometheus.GaugeValue, float64(boolToInt(state.Suspended != nil)), key)
		for _, result := range revalidation.Results {
			to <- prometheus.MustNewConstMetric(idpLastCheck, prometheus.GaugeValue, unixSeconds(state.Latest[result]), key, string(result))
		}
	}
}

func boolToInt(is bool) int {
	if is {
		return 1
	}
	return 0
}

func unixSeconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

var _ prometheus.Collector = providerCollector{}
