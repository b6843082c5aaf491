package gatewaytest

import (
	"encoding/json"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/standard" // what Caddyfiles in tests may use, and the built binary holds
)

// Adapt is a Caddyfile as Caddy reads it. A warning, as about formatting, is an
// error here.
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

// provisioning is held while a configuration is provisioned: that sets the default
// logger and certmagic's default storage, which all configurations share.
var provisioning sync.Mutex

// Provision loads a configuration, as [caddy.ProvisionContext] does. The last of its
// warnings and errors are shown if the test fails, but for logs that it sends
// elsewhere.
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
	writer := caddyconfig.JSONModuleObject(keepLog(t), "output", "test", nil)
	for _, log := range config.Logging.Logs {
		if log.WriterRaw == nil {
			log.WriterRaw, log.Level = writer, "WARN"
		}
	}
	provisioning.Lock()
	defer provisioning.Unlock()
	return caddy.ProvisionContext(config)
}
