package gatewaytest

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	_ "github.com/caddyserver/caddy/v2/modules/standard" // the modules that the built binary also contains, for Caddyfiles in tests
	"github.com/caddyserver/certmagic"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest/lastlines"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/gctest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
)

// Gateway is a gateway under test: a provisioned configuration and a browser's cookies.
type Gateway struct {
	Server  http.Handler      // first HTTP server of the configuration
	Context caddy.Context     // context of the provisioned configuration
	Cookies map[string]string // cookies of the browser by name

	t testing.TB // used to fail on invalid responses from the gateway
}

// New starts a gateway with an empty storage except for the example's keys and Caddy's certificate authority.
func New(t testing.TB, caddyfile string) *Gateway {
	t.Helper()
	return NewInFolder(t, caddyfile, StorageFolder(t))
}

// StorageFolder returns a new storage that contains the signing keys of the example's issuer and Caddy's certificate authority,
// because creating them takes longer than most tests.
func StorageFolder(t testing.TB) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS(preparedStorage())); err != nil {
		t.Fatal(err)
	}
	return folder
}

var preparedStorage = sync.OnceValue(func() string {
	folder := filepath.Join(caddy.AppDataDir(), "example") // removed when the process exits
	storage := keyring.LockingStorage{CertMagicStorage: &certmagic.FileStorage{Path: folder}}
	name := "fhir/keys/" + fhirbase.StorageName("https://localhost:8443") + ".json"
	if err := keyring.New(storage, name, slog.New(slog.DiscardHandler)).Refresh(context.Background()); err != nil {
		panic(err)
	}
	if err := createAuthority(folder); err != nil {
		panic(err)
	}
	return folder
})

func createAuthority(folder string) error {
	provisionMutex.Lock()
	defer provisionMutex.Unlock()
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

// NewInFolder is like [New] but stores keys and certificates in folder, so that a test can restart the gateway with them.
func NewInFolder(t testing.TB, caddyfile, folder string) *Gateway {
	t.Helper()
	config := Adapt(t, caddyfile)
	config.StorageRaw = fileStorage(folder)
	g, err := Serve(t, config)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// Serve returns a gateway with the given configuration.
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

// Backend serves a handler until the end of the test and returns its host and port.
func Backend(t testing.TB, handler http.Handler) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// NewBrowser returns the same gateway with a new browser that has no cookies.
func (g *Gateway) NewBrowser() *Gateway {
	return &Gateway{Server: g.Server, Context: g.Context, Cookies: map[string]string{}, t: g.t}
}

// Send sends a request to https://localhost:8443 with the browser's cookies, and stores the cookies of the response.
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

// Do sends a request with a body and headers, given as pairs of name and value. It omits headers with an empty value.
func (g *Gateway) Do(method, target, body string, headers ...string) *http.Response {
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

// Get sends a GET request. It sends an access token unless token is empty, and headers as in [Gateway.Do].
func (g *Gateway) Get(target, token string, headers ...string) *http.Response {
	if token != "" {
		token = "Bearer " + token
	}
	return g.Do(http.MethodGet, target, "", append([]string{"Authorization", token}, headers...)...)
}

// Post sends a form.
func (g *Gateway) Post(path string, form url.Values) *http.Response {
	return g.Do(http.MethodPost, path, form.Encode(), "Content-Type", "application/x-www-form-urlencoded")
}

// ReadBody returns the body of a response.
func ReadBody(t testing.TB, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Adapt adapts a Caddyfile. Warnings, such as those about formatting, fail the test.
func Adapt(t testing.TB, caddyfile string) *caddy.Config {
	t.Helper()
	document, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(caddyfile), map[string]any{"filename": "Caddyfile"})
	if err != nil || len(warnings) > 0 {
		t.Fatalf("adapting: %v, warnings %v", err, warnings)
	}
	config := new(caddy.Config)
	if err := json.Unmarshal(document, config); err != nil {
		t.Fatal(err)
	}
	return config
}

// provisionMutex is locked while a configuration is provisioned, because provisioning sets the default logger and certmagic's
// default storage, which all configurations share.
var provisionMutex sync.Mutex

// Provision loads a configuration like [caddy.ProvisionContext]. If the test fails, it prints the last warnings and errors,
// except those of logs that have their own writer.
func Provision(t testing.TB, config *caddy.Config) (caddy.Context, error) {
	t.Helper()
	if config.Logging == nil {
		config.Logging = new(caddy.Logging)
	}
	if config.Logging.Logs == nil {
		config.Logging.Logs = map[string]*caddy.CustomLog{}
	}
	if config.Logging.Logs[caddy.DefaultLoggerName] == nil {
		config.Logging.Logs[caddy.DefaultLoggerName] = new(caddy.CustomLog)
	}
	writer := caddyconfig.JSONModuleObject(newTestLog(t), "output", "test", nil)
	for _, log := range config.Logging.Logs {
		if log.WriterRaw == nil {
			log.WriterRaw, log.Level = writer, "WARN"
		}
	}
	provisionMutex.Lock()
	defer provisionMutex.Unlock()
	return caddy.ProvisionContext(config)
}

// WriteFile creates a file, which is removed at the end of the test, and returns its path.
func WriteFile(t testing.TB, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	ReplaceFile(t, path, content)
	return path
}

// ReplaceFile overwrites a file.
func ReplaceFile(t testing.TB, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// ReadFile returns the content of a file.
func ReadFile(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Root returns the absolute path of a file in the repository. The argument is relative to the folder that contains go.mod.
func Root(path string) string {
	folder := "."
	for {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return filepath.Join(folder, path)
		}
		if abs, err := filepath.Abs(folder); err != nil || filepath.Dir(abs) == abs {
			return path // opening this path fails with an error that contains it
		}
		folder = filepath.Join("..", folder)
	}
}

func init() {
	caddy.RegisterModule(testLog{})
}

// testLog is a log writer that stores the last lines and prints them only if the test fails. Otherwise, the log output of all
// tests would hide the failures.
type testLog struct {
	Number int64 `json:"number"`
}

func (testLog) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.logging.writers.test", New: func() caddy.Module { return new(testLog) }}
}

func (l testLog) String() string    { return l.WriterKey() }
func (l testLog) WriterKey() string { return fmt.Sprint("test log ", l.Number) }

func (l testLog) OpenWriter() (io.WriteCloser, error) {
	lines, _ := testLogs.Load(l.Number)
	return lines.(*lastlines.Lines), nil
}

// testLogs contains the *lastlines.Lines of each configuration, by number.
var (
	testLogs       sync.Map
	testLogNumbers atomic.Int64
)

// newTestLog returns a new log for a test.
func newTestLog(t testing.TB) testLog {
	number, lines := testLogNumbers.Add(1), new(lastlines.Lines)
	testLogs.Store(number, lines)
	t.Cleanup(func() {
		if text := lines.String(); t.Failed() && text != "" {
			t.Logf("the log ends with:\n%s", text)
		}
	})
	return testLog{number}
}

// UnreachableBackend is the address of a FHIR server that can never run, because a socket cannot exist below a file.
const UnreachableBackend = "unix/" + os.DevNull + "/fhir.sock"

// Main runs tests independently of the machine's environment and the user's folders, and returns the exit status.
func Main(m *testing.M) int {
	folder, err := os.MkdirTemp("", "gatewaytest")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, "CADDY_") || strings.HasPrefix(name, "FHIR_") {
			_ = os.Unsetenv(name)
		}
	}
	for name, value := range map[string]string{
		"FHIR_BACKEND":    UnreachableBackend,
		"XDG_CONFIG_HOME": filepath.Join(folder, "config"),
		"XDG_DATA_HOME":   filepath.Join(folder, "data"),
	} {
		_ = os.Setenv(name, value)
	}
	caddy.DefaultStorage.Path = caddy.AppDataDir() // Caddy has already set the path from the original environment
	flag.Parse()
	_ = flag.Set("test.parallel", strconv.Itoa(4*runtime.GOMAXPROCS(0))) // most tests spend more time waiting than computing
	return m.Run()
}
