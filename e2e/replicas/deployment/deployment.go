package deployment

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Config configures a deployment.
type Config struct {
	Binary      string   // path of the built gateway
	Folder      string   // absolute folder for all files
	Engine      string   // one of Engines
	Gateways    int      // number of gateways
	Address     string   // host and port of the issuer, at which nginx listens
	Caddyfile   string   // Caddyfile for a single gateway with the site https://Address
	Environ     []string // additional environment variables of the gateways
	ReadTimeout string   // how long nginx waits for a gateway's response; default 60s
	Cuts        bool     // run servers in network namespaces

	// Between starts a proxy between the gateways and an address of the store, and returns its address. Nil: no proxy.
	Between func(address string) (string, error)
}

// Deployment consists of several gateways that share a store, behind nginx.
type Deployment struct {
	Issuer   string
	Roots    *x509.CertPool // CA of nginx's certificate
	RootFile string
	Network  *Network
	Engine   Engine
	Gateways []*Gateway
	Balancer *Process
}

// ErrNoNamespaces is returned if this machine does not support network namespaces, so servers cannot be cut off.
var ErrNoNamespaces = errors.New("no network namespaces here")

// Start starts all servers of a deployment and waits until they respond.
func Start(c Config) (d *Deployment, err error) {
	if c.ReadTimeout == "" {
		c.ReadTimeout = "60s"
	}
	if err := os.MkdirAll(c.Folder, 0o700); err != nil {
		return nil, err
	}
	d = &Deployment{Issuer: "https://" + c.Address, RootFile: filepath.Join(c.Folder, "certificate.pem"), Network: Loopback()}
	defer func() {
		if err != nil {
			d.Stop()
		}
	}()
	name, _, err := net.SplitHostPort(c.Address)
	if err != nil {
		return d, err
	}
	if d.Roots, err = newCertificate(c.Folder, name); err != nil {
		return d, err
	}
	if c.Cuts {
		if d.Network, err = NewNetwork(); err != nil {
			d.Network = Loopback()
			return d, fmt.Errorf("%w: %w", ErrNoNamespaces, err)
		}
	}
	if d.Engine, err = StartEngine(c.Engine, c.Folder, d.Network); err != nil {
		return d, err
	}
	if err := d.startGateways(&c); err != nil {
		return d, err
	}
	d.Balancer, err = newBalancer(c.Folder, c.Address, c.ReadTimeout, d.Gateways, d.answers)
	if err != nil {
		return d, err
	}
	return d, d.Balancer.Start()
}

// startGateways starts all gateways concurrently, as operators do. The gateways race to create the table and the keys.
func (d *Deployment) startGateways(c *Config) error {
	store := d.Engine.Directives()
	if c.Between != nil {
		for _, address := range d.Engine.Addresses() {
			proxy, err := c.Between(address)
			if err != nil {
				return err
			}
			store = strings.ReplaceAll(store, address, proxy)
		}
	}
	for n := range c.Gateways {
		g, err := newGateway(c, d.Network, store, n+1)
		if err != nil {
			return err
		}
		d.Gateways = append(d.Gateways, g)
	}
	errs := make(chan error, c.Gateways)
	for _, g := range d.Gateways {
		go func() { errs <- g.Start() }()
	}
	var all error
	for range d.Gateways {
		all = errors.Join(all, <-errs)
	}
	return all
}

// answers returns nil if the gateways respond through nginx.
func (d *Deployment) answers() error {
	client := d.Client()
	defer client.CloseIdleConnections()
	answer, err := client.Get(d.Issuer + "/.well-known/openid-configuration")
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		err = errors.New(answer.Status)
	}
	return errors.Join(err, answer.Body.Close())
}

// Client returns a client that trusts nginx's certificate and does not follow redirects. It connects to nginx for each host
// name.
func (d *Deployment) Client() *http.Client {
	return &http.Client{
		Timeout: 30 * time.Second,
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: d.Roots}, MaxIdleConnsPerHost: 64, DisableCompression: true,
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				_, port, err := net.SplitHostPort(address)
				if err != nil {
					return nil, err
				}
				return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort("127.0.0.1", port))
			},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Stop stops all servers.
func (d *Deployment) Stop() {
	if d.Balancer != nil {
		d.Balancer.Stop()
	}
	for _, g := range d.Gateways {
		g.Resume() // a paused process does not react to signals
		g.Stop()
	}
	if d.Engine != nil {
		d.Engine.Stop()
	}
	d.Network.Close()
}

// CopyLogs copies the logs of all servers to a folder.
func (d *Deployment) CopyLogs(folder string) error {
	var all error
	logs, err := filepath.Glob(filepath.Join(filepath.Dir(d.RootFile), "*.log"))
	if err != nil {
		return err
	}
	for _, log := range logs {
		text, err := os.ReadFile(log)
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, filepath.Base(log)), text, 0o600)
		}
		all = errors.Join(all, err)
	}
	return all
}
