package deployment

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Gateway is one gateway of a deployment.
type Gateway struct {
	*Process
	Address string // address for plain HTTP from the load balancer
	Admin   string // address of the admin API
	Home    string // folder of its files
}

// StoreKey sets the environment variable with the key that encrypts shared state in the store.
const StoreKey = "FHIR_STORE_KEY=" + "YS1rZXktZm9yLXRyeWluZy1vdXQtcmVwbGljYXMtMDE="

// newGateway returns a gateway with its own storage. Its Caddyfile is the configured one with a different site address.
func newGateway(c *Config, network *Network, store string, n int) (*Gateway, error) {
	host, err := network.host()
	if err != nil {
		return nil, err
	}
	address, err1 := host.listen()
	admin, err2 := host.listen()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	if host.namespace != "" {
		admin = net.JoinHostPort(host.address, "2019")
	}
	g := &Gateway{Address: address, Admin: admin, Home: filepath.Join(c.Folder, fmt.Sprintf("gateway-%d", n))}
	if err := os.MkdirAll(g.Home, 0o700); err != nil {
		return nil, err
	}
	text, err := c.behind(address, store)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(g.Caddyfile(), []byte(text), 0o600); err != nil {
		return nil, err
	}
	g.Process = &Process{
		Name: fmt.Sprintf("gateway-%d", n), host: host, log: filepath.Join(c.Folder, fmt.Sprintf("gateway-%d.log", n)), ready: g.isReady,
		command: []string{c.Binary, "run", "--config", g.Caddyfile(), "--adapter", "caddyfile"},
		environ: append([]string{
			"HOME=" + g.Home, "XDG_DATA_HOME=" + filepath.Join(g.Home, "data"), "XDG_CONFIG_HOME=" + filepath.Join(g.Home, "config"),
			"CADDY_ADMIN=" + admin, StoreKey,
		}, c.Environ...),
	}
	return g, nil
}

// Caddyfile returns the path of the gateway's Caddyfile.
func (g *Gateway) Caddyfile() string { return filepath.Join(g.Home, "Caddyfile") }

// Environ returns the environment variables that are set in addition to those of this process.
func (g *Gateway) Environ() []string { return g.environ }

// behind returns the Caddyfile for a gateway behind the load balancer.
func (c *Config) behind(address, store string) (string, error) {
	const block = "\tfhir {\n"
	site := "\nhttps://" + c.Address + " {\n"
	if strings.Count(c.Caddyfile, site) != 1 || strings.Count(c.Caddyfile, block) != 1 {
		return "", fmt.Errorf("the Caddyfile has not one fhir block and one site https://%s", c.Address)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	text := strings.Replace(c.Caddyfile, site, "\nhttp://:"+port+" {\n\tbind "+host+"\n", 1)
	text = strings.Replace(text, block, block+store, 1)
	const servers = "\tservers {\n"
	if !strings.Contains(text, servers) {
		text = strings.Replace(text, block, servers+"\t}\n\n"+block, 1)
	}
	return strings.Replace(text, servers, servers+"\t\ttrusted_proxies static 127.0.0.1/32 10.211.0.0/16\n", 1), nil
}

var readiness = &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// isReady requests the gateway's keys. The gateway first creates them or reads them from the store.
func (g *Gateway) isReady() error {
	r, err := http.NewRequest(http.MethodGet, "http://"+g.Address+"/.well-known/jwks.json", nil)
	if err != nil {
		return err
	}
	r.Header.Set("X-Forwarded-Proto", "https")
	answer, err := readiness.Do(r)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		err = errors.New(answer.Status)
	}
	return errors.Join(err, answer.Body.Close())
}
