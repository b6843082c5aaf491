package quota

import (
	"errors"
	"net/http"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/metrics"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/requester"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/bearer"
)

func init() {
	caddy.RegisterModule(new(App))
	caddy.RegisterModule(new(Guard))
}

// inUse has the counts of each issuer, or guard without the fhir app, and keeps them over reloads.
var inUse = caddy.NewUsagePool()

var refusals = metrics.NewCounters("quota_refusals_total", "Requests that a quota refused.", "quota")

// counting counts by the quotas of a configuration, from the counts of the previous one.
type counting struct {
	set *Set
	key string // in inUse; "" until there are counts
}

// begin is called with where gateways count together; nil if this one counts alone.
func (c *counting) begin(key string, quotas []Quota, shared *Shared) error {
	if err := checkAll(quotas); err != nil {
		return err
	}
	counts, _, err := inUse.LoadOrNew(key, func() (caddy.Destructor, error) { return NewCounts(), nil })
	if err != nil {
		return err
	}
	c.key, c.set = key, NewSet(quotas, counts.(*Counts), shared, func(name string) { refusals.WithLabelValues(name).Inc() })
	return nil
}

// Cleanup leaves the counts to the next configuration.
func (c *counting) Cleanup() error {
	if c.key == "" {
		return nil
	}
	_, err := inUse.Delete(c.key)
	return err
}

// App is the option quota of the fhir app, which counts requests to the token endpoint and those of each fhir_bearer.
type App struct {
	// The quotas of apps, people and networks. Default: none.
	Quotas []Quota `json:"quotas,omitempty"`

	counting
	issuer string
}

// CaddyModule returns the Caddy module information.
func (*App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.features.quota", New: func() caddy.Module { return new(App) }}
}

// Subdirectives implements [option.Feature]. Syntax:
//
//	quota <name> client|person|network <limit> <window> {
//		count <what> [<cost>]
//	}
func (a *App) Subdirectives() (fields option.Block, repeatable []string) {
	return subdirectives(&a.Quotas)
}

// Configure implements [fhirapp.Feature].
func (a *App) Configure(app *fhirapp.App, c *authorize.Config) error {
	var shared *Shared
	if in := app.Stores().Store; store.IsShared(in) {
		shared = &Shared{Store: in, Keys: app.Keys()}
	}
	a.issuer, c.CountToken = app.Issuer, a.countToken
	return a.begin(app.Issuer, a.Quotas, shared)
}

// countToken counts a request to the token endpoint, by its network before its client is known. A client without secret or key
// is counted separately in each network: anyone can send its client_id, and must not exhaust its quota for others.
func (a *App) countToken(w http.ResponseWriter, r *http.Request, clientID string, public bool) error {
	by, whose := Client, Whose(a.issuer, clientID)
	switch network := requester.NetworkOf(r); {
	case clientID == "":
		by, whose = Network, network
	case public:
		whose = Whose(a.issuer, clientID, network)
	}
	err := a.set.Take(r.Context(), w.Header(), by, whose, Token)
	refusal, refused := errors.AsType[*Refusal](err)
	if !refused {
		return err
	}
	if !refusal.First {
		audit.FromContext(r.Context()).Refused = true // logged once a minute
	}
	return &oauth2.Error{
		Code: "temporarily_unavailable", Status: http.StatusTooManyRequests, Description: refusal.Diagnostics(), Err: refusal,
	}
}

// Admission implements [bearer.AdmissionFeature].
func (a *App) Admission(s bearer.Site) (bearer.Admission, error) {
	return &admission{a.set, s.Base, s.Audit}, nil
}

// Guard is the option quota of a fhir_bearer without the fhir app, which counts in this process alone.
type Guard struct {
	// The quotas of apps, people and networks, without the fhir app; with it, they are an option of the app.
	// Default: no quotas.
	Quotas []Quota `json:"quotas,omitempty"`

	counting
}

// CaddyModule returns the Caddy module information.
func (*Guard) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.bearer.quota", New: func() caddy.Module { return new(Guard) }}
}

// Subdirectives implements [option.Feature]. The syntax is that of [App.Subdirectives].
func (g *Guard) Subdirectives() (fields option.Block, repeatable []string) {
	return subdirectives(&g.Quotas)
}

var errQuotasOfApp = errors.New("quota: with the fhir app it is an option of the app, in its block fhir { … }")

// Admission implements [bearer.AdmissionFeature].
func (g *Guard) Admission(s bearer.Site) (bearer.Admission, error) {
	if s.HasApp {
		return nil, errQuotasOfApp
	}
	err := g.begin("fhir_bearer "+s.URL+s.Base, g.Quotas, nil)
	return &admission{g.set, s.Base, s.Audit}, err
}

var (
	_ option.Feature          = (*App)(nil)
	_ fhirapp.Feature         = (*App)(nil)
	_ bearer.AdmissionFeature = (*App)(nil)
	_ caddy.CleanerUpper      = (*App)(nil)
	_ option.Feature          = (*Guard)(nil)
	_ bearer.AdmissionFeature = (*Guard)(nil)
	_ caddy.CleanerUpper      = (*Guard)(nil)
)
