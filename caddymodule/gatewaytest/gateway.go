package gatewaytest

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/certmagic"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
)

// Gateway is a provisioned configuration, and a browser that calls its server.
type Gateway struct {
	Server  http.Handler      // the first HTTP server of the configuration
	Context caddy.Context     // what the configuration was provisioned with
	Cookies map[string]string // the browser's, by name

	t testing.TB // fails if the gateway answers as it must not
}

// New is a gateway with a storage of its own.
func New(t testing.TB, caddyfile string) *Gateway {
	t.Helper()
	return NewAt(t, caddyfile, Folder(t))
}

// Folder is a storage that has the signing keys of the example's issuer, and Caddy's own certificate authority: to make
// them takes longer than most tests.
func Folder(t testing.TB) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS(filled())); err != nil {
		t.Fatal(err)
	}
	return folder
}

var filled = sync.OnceValue(func() string {
	folder := filepath.Join(caddy.AppDataDir(), "example") // goes with the process
	storage := keyring.Locked{LockedStorage: &certmagic.FileStorage{Path: folder}}
	name := "fhir/keys/" + fhirbase.StorageName("https://localhost:8443") + ".json"
	if err := keyring.New(storage, name, slog.New(slog.DiscardHandler)).Refresh(context.Background()); err != nil {
		panic(err)
	}
	if err := makeAuthority(folder); err != nil {
		panic(err)
	}
	return folder
})

func makeAuthority(folder string) error {
	provisioning.Lock()
	defer provisioning.Unlock()
	_, err := caddy.ProvisionContext(&caddy.Config{
		StorageRaw: fileStorage(folder), AppsRaw: caddy.ModuleMap{"pki": []byte("{}")},
		Logging: &caddy.Logging{Logs: map[string]*caddy.CustomLog{caddy.DefaultLoggerName: {
			BaseLog: caddy.BaseLog{WriterRaw: caddyconfig.JSONModuleObject(struct{}{}, "output", "discard", nil)},
		}}},
	})
	return err
}

func fileStorage(folder string) []byte {
	return caddyconfig.JSON(map[string]string{"module": "file_system", "root": folder}, nil)
}

// NewAt is a gateway that keeps its keys and certificates in a folder, as one
// does that is restarted.
func NewAt(t testing.TB, caddyfile, folder string) *Gateway {
	t.Helper()
	config := Adapt(t, caddyfile)
	config.StorageRaw = fileStorage(folder)
	g, err := Serve(t, config)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// Serve is a gateway of a configuration.
func Serve(t testing.TB, config *caddy.Config) (*Gateway, error) {
	t.Helper()
	ctx, err := Provision(t, config)
	if err != nil {
		return nil, err
	}
	app, err := ctx.App("http")
	if err != nil {
		return nil, err
	}
	return &Gateway{Server: app.(*caddyhttp.App).Servers["srv0"], Context: ctx, Cookies: map[string]string{}, t: t}, nil
}

// Backend serves a handler as long as the test lasts, and returns its host and port.
func Backend(t testing.TB, handler http.Handler) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// NewBrowser is the same gateway before a browser without cookies.
func (g *Gateway) NewBrowser() *Gateway {
	return &Gateway{Server: g.Server, Context: g.Context, Cookies: map[string]string{}, t: g.t}
}

// Send sends a request to https://localhost:8443 with the browser's cookies, and
// keeps those of the answer.
func (g *Gateway) Send(r *http.Request) *http.Response {
	r.TLS, r.Host = &tls.ConnectionState{ServerName: "localhost"}, "localhost:8443"
	for name, value := range g.Cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	w := httptest.NewRecorder()
	g.Server.ServeHTTP(w, r)
	response := w.Result()
	for _, c := range response.Cookies() {
		g.Cookies[c.Name] = c.Value
	}
	return response
}

// Ask sends a request with a body and headers, each a name and a value. Those that are empty are left out.
func (g *Gateway) Ask(method, target, body string, headers ...string) *http.Response {
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	r := httptest.NewRequest(method, target, content)
	for header := range slices.Chunk(headers, 2) {
		if header[1] != "" {
			r.Header.Set(header[0], header[1])
		}
	}
	return g.Send(r)
}

// Get sends a GET request, with an access token unless that is empty, and with headers as [Gateway.Ask] takes them.
func (g *Gateway) Get(target, token string, headers ...string) *http.Response {
	if token != "" {
		token = "Bearer " + token
	}
	return g.Ask(http.MethodGet, target, "", append([]string{"Authorization", token}, headers...)...)
}

// Post sends a form.
func (g *Gateway) Post(path string, form url.Values) *http.Response {
	return g.Ask(http.MethodPost, path, form.Encode(), "Content-Type", "application/x-www-form-urlencoded")
}

// Read is the body of an answer.
func Read(t testing.TB, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
