package fhirapp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores"
)

// Bounds of a request to the health port, whose answer takes CheckTimeout at most.
const (
	healthHeaderTimeout = 5 * time.Second
	healthTimeout       = 2 * stores.CheckTimeout
	maxHealthHeader     = 8 << 10
)

// healthPort answers the probes of whatever runs gateways, on a port of its own, by plain HTTP.
type healthPort struct {
	server *http.Server
}

// healthPorts keeps ports over reloads, by address: what a configuration closes resets the connections that it has not accepted,
// and a probe would take that for a gateway that is gone.
var healthPorts = caddy.NewUsagePool()

// useHealthPort opens the port, unless the previous configuration has done so.
func useHealthPort(address string, handler http.Handler) (port *healthPort, release func() error, err error) {
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
		return nil, fmt.Errorf("health %s: it takes no connections", text)
	}
	p := &healthPort{server: &http.Server{
		Handler: handler, ReadHeaderTimeout: healthHeaderTimeout, ReadTimeout: healthTimeout, WriteTimeout: healthTimeout,
		IdleTimeout: time.Minute, MaxHeaderBytes: maxHealthHeader,
	}}
	go func() { _ = p.server.Serve(listener) }() // until Destruct
	return p, nil
}

// Destruct ends listening when the requests under way are answered.
func (p *healthPort) Destruct() error {
	ctx, cancel := context.WithTimeout(context.Background(), healthTimeout)
	defer cancel()
	return errors.Join(p.server.Shutdown(ctx), p.server.Close())
}
