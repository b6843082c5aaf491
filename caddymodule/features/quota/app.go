package quota

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/metrics"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/requester"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/bearer"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

func init() {
	caddy.RegisterModule(new(App))
	caddy.RegisterModule(new(Guard))
}

// countsPool maps issuers, or guards without the fhir app, to their counts, so that counts survive reloads.
var countsPool = caddy.NewUsagePool()

var rejectedRequests = metrics.NewCounters("quota_refusals_total", "Requests rejected by a quota.", "quota")

// limiter applies the quotas of a configuration. It reuses the counts of the previous configuration.
type limiter struct {
	set *Set
	key string // key in countsPool; "" before start
}

// start loads the counts. If gateways do not share counts, shared is nil.
func (c *limiter) start(key string, quotas []Quota, shared *Shared) error {
	if err := checkQuotas(quotas); err != nil {
		return err
	}
	counts, _, err := countsPool.LoadOrNew(key, func() (caddy.Destructor, error) { return NewCounts(), nil })
	if err != nil {
		return err
	}
	c.key, c.set = key, NewSet(quotas, counts.(*Counts), shared, func(name string) { rejectedRequests.WithLabelValues(name).Inc() })
	return nil
}

// Cleanup releases the counts, which a later configuration may still use.
func (c *limiter) Cleanup() error {
	if c.key == "" {
		return nil
	}
	_, err := countsPool.Delete(c.key)
	return err
}

// App is the option quota of the fhir app. It limits requests to the token endpoint and to each fhir_bearer.
type App struct {
	// The quotas of apps, people and networks. Default: none.
	Quotas []Quota `json:"quotas,omitempty"`

	limiter
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
	return a.start(app.Issuer, a.Quotas, shared)
}

// countToken counts a request to the token endpoint: per client, or per network before the client is known. A public client is
// counted separately in each network, because anyone can send its client_id and could otherwise exhaust its quota for all
// users.
func (a *App) countToken(w http.ResponseWriter, r *http.Request, clientID string, public bool) error {
	by, holder := Client, HolderID(a.issuer, clientID)
	switch network := requester.NetworkOf(r); {
	case clientID == "":
		by, holder = Network, network
	case public:
		holder = HolderID(a.issuer, clientID, network)
	}
	err := a.set.Consume(r.Context(), w.Header(), by, holder, Token)
	exceeded, isExceeded := errors.AsType[*ExceededError](err)
	if !isExceeded {
		return err
	}
	if !exceeded.FirstInInterval {
		audit.FromContext(r.Context()).Rejected = true // the rejection is logged at most once a minute
	}
	return &oauth2.Error{
		Code: "temporarily_unavailable", Status: http.StatusTooManyRequests, Description: exceeded.Diagnostics(), Err: exceeded,
	}
}

// Admission implements [bearer.AdmissionFeature].
func (a *App) Admission(s bearer.Site) (bearer.Admission, error) {
	return &admission{a.set, s.Base, s.Audit}, nil
}

// Guard is the option quota of a fhir_bearer without the fhir app. It counts the requests in this process only.
type Guard struct {
	// The quotas of apps, people and networks. Only without the fhir app; with the app, configure quotas there. Default: none.
	Quotas []Quota `json:"quotas,omitempty"`

	limiter
}

// CaddyModule returns the Caddy module information.
func (*Guard) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.bearer.quota", New: func() caddy.Module { return new(Guard) }}
}

// Subdirectives implements [option.Feature]. The syntax is that of [App.Subdirectives].
func (g *Guard) Subdirectives() (fields option.Block, repeatable []string) {
	return subdirectives(&g.Quotas)
}

var errConfiguredInApp = errors.New("quota: with the fhir app, set this option in the block fhir { … } instead")

// Admission implements [bearer.AdmissionFeature].
func (g *Guard) Admission(s bearer.Site) (bearer.Admission, error) {
	if s.HasApp {
		return nil, errConfiguredInApp
	}
	err := g.start("fhir_bearer "+s.URL+s.Base, g.Quotas, nil)
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

// admission counts the requests to one fhir_bearer, except internal requests of this process.
type admission struct {
	set      *Set
	basePath string // path of the FHIR API
	audit    func(ctx context.Context, e audit.Event)
}

// AdmitUnverified implements [bearer.Admission]. It counts a request by network before the token is verified.
func (a *admission) AdmitUnverified(w http.ResponseWriter, r *http.Request) error {
	if !a.set.HasLimit(Network) || guard.TokenFromContext(r.Context()) != nil {
		return nil
	}
	err := a.set.Consume(r.Context(), w.Header(), Network, requester.NetworkOf(r), RequestKind(r.URL.Path))
	return a.reject(r, audit.Event{Anonymous: true}, err)
}

// Admit implements [bearer.Admission]. It counts a request by the client and the person of its token.
func (a *admission) Admit(w http.ResponseWriter, r *http.Request, t *guard.Token) error {
	if guard.TokenFromContext(r.Context()) != nil {
		return nil
	}
	kind := RequestKind(r.URL.Path)
	err := a.set.Consume(r.Context(), w.Header(), Client, clientID(t), kind)
	if person := personID(t); err == nil && person != "" {
		err = a.set.Consume(r.Context(), w.Header(), Person, person, kind)
	}
	return a.reject(r, audit.Event{User: t.Subject, ClientID: t.ClientID}, err)
}

// clientID identifies the client of a token. If the token has no client_id, it identifies the subject.
func clientID(t *guard.Token) string { return HolderID(t.Issuer, cmp.Or(t.ClientID, t.Subject)) }

// personID identifies the person of a token. It returns "" if the client acts on its own behalf (RFC 9068 §2.2).
func personID(t *guard.Token) string {
	if t.Subject == "" || t.Subject == t.ClientID {
		return ""
	}
	return HolderID(t.Issuer, t.Subject)
}

// reject converts an [ExceededError] to a response with status 429. It records rejections in the audit log at most once a
// minute for each holder.
func (a *admission) reject(r *http.Request, e audit.Event, err error) error {
	exceeded, isExceeded := errors.AsType[*ExceededError](err)
	if !isExceeded {
		return err
	}
	if exceeded.FirstInInterval {
		e.Kind, e.Address = audit.KindAccess, requester.Address(r)
		e.Err = &oauth2.Error{Code: "throttled", Description: exceeded.Diagnostics()}
		a.audit(r.Context(), e)
	}
	return caddyhttp.Error(http.StatusTooManyRequests, exceeded)
}

// RecordDecision implements [bearer.Admission]. It counts the entries of a batch or transaction, admitted as one request.
func (a *admission) RecordDecision(r *http.Request, b enforce.Bearer, d enforce.Decision) {
	isEntry := r.Method == http.MethodPost && (r.URL.Path == a.basePath || r.URL.Path == a.basePath+"/") && d.Interaction.Kind != interaction.Bundle
	if !isEntry || b.Token == nil || guard.TokenFromContext(r.Context()) != nil {
		return
	}
	kind := cmp.Or(d.Interaction.Operation, Request)
	a.set.Charge(Network, requester.NetworkOf(r), kind)
	a.set.Charge(Client, clientID(b.Token), kind)
	if person := personID(b.Token); person != "" {
		a.set.Charge(Person, person, kind)
	}
}

var _ bearer.Admission = (*admission)(nil)
