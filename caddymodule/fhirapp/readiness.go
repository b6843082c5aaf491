package fhirapp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revalidation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores"
)

// readinessResponse is the response to GET /fhir/ready.
type readinessResponse struct {
	Ready    bool              `json:"ready"`
	Parts    map[string]string `json:"parts"`              // "ok" or the cause of the problem, by part
	Problems []string          `json:"problems,omitempty"` // why the gateway is not ready
	Warnings []string          `json:"warnings,omitempty"` // faults that do not affect readiness

	// IdentityProviders are the providers with revalidation, with the latest checks by this gateway. They do not affect
	// readiness.
	IdentityProviders []revalidation.ProviderState `json:"identity_providers,omitempty"`
}

// StatusCode returns 200 if the gateway is ready, otherwise 503.
func (r *readinessResponse) StatusCode() int { return readinessStatus(r.Ready) }

func readinessStatus(isReady bool) int {
	if isReady {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}

// setPart records the status of a part.
func (r *readinessResponse) setPart(part string, cause store.Cause, problem error) {
	r.Parts[part] = "ok"
	if problem != nil {
		r.Parts[part] = string(cause)
		r.Problems = append(r.Problems, fmt.Sprintf("%s: %v", part, problem))
	}
}

// checkReadiness returns the readiness of the running configuration. There is none before the first configuration has started
// and while the process is stopping. A configuration without the fhir app is ready as soon as it has started, because its
// guards need neither stores nor keys.
func checkReadiness(ctx context.Context, running caddy.Context) (*readinessResponse, error) {
	response := &readinessResponse{Parts: map[string]string{}}
	switch {
	case caddy.Exiting():
		response.setPart("configuration", "stopping", errShuttingDown)
		return response, nil
	case running.Context == nil:
		response.setPart("configuration", "starting", errNotStarted)
		return response, nil
	}
	app, err := fhirbase.FindAppOrNil[*App](running)
	if err != nil {
		return nil, caddy.APIError{HTTPStatus: http.StatusInternalServerError, Err: err}
	}
	response.setPart("configuration", "", nil)
	if app != nil {
		ctx, cancel := context.WithTimeout(ctx, stores.CheckTimeout)
		defer cancel()
		for _, h := range app.stores.Health(ctx) {
			response.setPart(h.Part, h.Cause, h.Problem)
			for _, warning := range h.Warnings {
				response.Warnings = append(response.Warnings, h.Part+": "+warning)
			}
		}
		response.setPart("signing keys", store.CauseUnavailable, checkSigningKeys(ctx, app.keys))
		if app.updater != nil {
			if err := app.updater.UpdateError(); err != nil && !errors.Is(err, store.ErrUnavailable) { // the store reports this itself
				response.setPart("clients and users", store.CauseOther, err)
			}
		}
		response.addProviders(ctx, app)
	}
	response.Ready = len(response.Problems) == 0
	return response, nil
}

// addProviders adds the state of identity providers. It does not report an unavailable store, which is a separate part.
func (r *readinessResponse) addProviders(ctx context.Context, app *App) {
	states, err := app.Server().ProviderStates(ctx)
	if err != nil {
		return
	}
	r.IdentityProviders = states
	for _, s := range states {
		if s.State != "ok" && s.State != "unchecked" {
			r.Warnings = append(r.Warnings, fmt.Sprintf("idp %s: %s", s.Key, s.State))
		}
	}
}

var (
	errNotStarted   = errors.New("no configuration has started yet")
	errShuttingDown = errors.New("shutting down: new requests are accepted until Caddy's shutdown_delay ends, then pending requests finish")
)

// checkSigningKeys returns an error if tokens cannot be signed now or after a restart.
func checkSigningKeys(ctx context.Context, keys *keyring.Keyring) error {
	result := make(chan error, 1)
	go func() {
		_, err := keys.JWKS(ctx)
		result <- cmp.Or(err, keys.LoadError())
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return fmt.Errorf("reading them timed out after %v", stores.CheckTimeout)
	}
}

// healthHandler serves the health probes:
//
//	GET /live     200: the process responds
//	GET /started  200 after the first configuration has started, with or without its store, until the process is stopping; else 503
//	GET /ready    200 if the gateway can serve all requests, else 503 with the problems by part
//
// /started and /ready return 503 from the start of Caddy's shutdown_delay, but not during a reload.
func healthHandler(running func() caddy.Context) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /live", func(w http.ResponseWriter, _ *http.Request) {
		writeHealth(w, http.StatusOK, map[string]bool{"live": true})
	})
	mux.HandleFunc("GET /started", func(w http.ResponseWriter, _ *http.Request) {
		started := running().Context != nil && !caddy.Exiting()
		writeHealth(w, readinessStatus(started), map[string]bool{"started": started})
	})
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, r *http.Request) {
		response, err := checkReadiness(r.Context(), running())
		if err != nil {
			response = &readinessResponse{Problems: []string{err.Error()}}
		}
		writeHealth(w, response.StatusCode(), response)
	})
	return mux
}

func writeHealth(w http.ResponseWriter, status int, response any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(response) // write errors do not matter: probes retry
}

// Limits for requests to the health port. A response takes at most CheckTimeout.
const (
	healthHeaderTimeout = 5 * time.Second
	healthTimeout       = 2 * stores.CheckTimeout
	maxHealthHeader     = 8 << 10
)

// healthPort serves the health probes over plain HTTP on a separate port.
type healthPort struct {
	server *http.Server
}

// healthPorts contains the open ports by address. They stay open across reloads: closing a listener resets connections that it
// has not accepted, and probes would report the gateway as down.
var healthPorts = caddy.NewUsagePool()

// acquireHealthPort opens the port or reuses the port that the previous configuration opened.
func acquireHealthPort(address string, handler http.Handler) (port *healthPort, release func() error, err error) {
	pooled, _, err := healthPorts.LoadOrNew(address, func() (caddy.Destructor, error) { return openHealthPort(address, handler) })
	if err != nil {
		return nil, nil, err
	}
	return pooled.(*healthPort), func() error { _, err := healthPorts.Delete(address); return err }, nil
}

func checkHealthAddress(text string) error {
	address, err := caddy.ParseNetworkAddress(text)
	if err != nil || !address.IsUnixNetwork() && (address.StartPort == 0 || address.PortRangeSize() != 1) {
		return fmt.Errorf("invalid health address %q: use one such as :8081 or 127.0.0.1:8081", text)
	}
	return nil
}

func openHealthPort(text string, handler http.Handler) (*healthPort, error) {
	address, err := caddy.ParseNetworkAddress(text)
	if err != nil {
		return nil, err
	}
	opened, err := address.Listen(context.Background(), 0, net.ListenConfig{})
	if err != nil {
		return nil, fmt.Errorf("health %s: %w", text, err)
	}
	listener, ok := opened.(net.Listener)
	if !ok {
		return nil, fmt.Errorf("health %s: address does not support stream connections", text)
	}
	p := &healthPort{server: &http.Server{
		Handler: handler, ReadHeaderTimeout: healthHeaderTimeout, ReadTimeout: healthTimeout, WriteTimeout: healthTimeout,
		IdleTimeout: time.Minute, MaxHeaderBytes: maxHealthHeader,
	}}
	go func() { _ = p.server.Serve(listener) }() // runs until Destruct
	return p, nil
}

// Destruct closes the port after pending requests have finished.
func (p *healthPort) Destruct() error {
	ctx, cancel := context.WithTimeout(context.Background(), healthTimeout)
	defer cancel()
	return errors.Join(p.server.Shutdown(ctx), p.server.Close())
}
