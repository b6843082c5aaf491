// Package quotaoption is the option quota, of the fhir app or of a guard without it: how it is written, and who is counted by it. Package quota counts.
package quotaoption

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/metrics"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/quota"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/requester"
)

// Quota says how much each app, person or network may ask for in any window of time. Who asks for more gets 429, and is told when to
// try again. Gateways that share a store count together.
type Quota struct {
	// What clients and metrics know it by: lower-case letters, digits, `-` and `_`. Required.
	Name string `json:"name,omitempty"`

	// By whom it counts: `client` (an app), `person`, or `network` (an IPv4 address, or the /64 of an IPv6 address). Required.
	By string `json:"by,omitempty"`

	// How much is let in in any window. Required.
	Limit int `json:"limit,omitempty"`

	// How long a window is: whole seconds, from 1s to 31d. Required.
	Window caddy.Duration `json:"window,omitempty"`

	// What counts, and what one costs: `request`, `token`, or operations such as `$expand`; nothing else counts. Default: each
	// request to the FHIR API costs 1.
	Costs map[string]int `json:"costs,omitempty"`
}

// Parse returns what reads a quota and adds it to others.
func Parse(to *[]Quota) option.Setter {
	return func(d *caddyfile.Dispenser) error {
		var q Quota
		if err := q.parse(d); err != nil {
			return err
		}
		*to = append(*to, q)
		_, err := checked(*to)
		return option.WithLine(d, err)
	}
}

func (q *Quota) parse(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) != 4 {
		return d.Err("a quota has a name, client, person or network, a limit and a window: quota apps client 1000 1m")
	}
	q.Name, q.By = args[0], args[1]
	if err := errors.Join(option.ParseNumber(&q.Limit)(args[2]), option.ParseDuration(&q.Window)(args[3])); err != nil {
		return d.WrapErr(err)
	}
	return option.Block{"count": q.parseCount}.Parse(d, "count")
}

// parseCount reads what counts, and what it costs.
func (q *Quota) parseCount(d *caddyfile.Dispenser) error {
	what, costs, err := option.OneOrTwo(d)
	if err != nil {
		return err
	}
	cost := 1
	if costs != "" {
		if cost, err = strconv.Atoi(costs); err != nil {
			return d.Errf("count %s: %q is no number", what, costs)
		}
	}
	if _, exists := q.Costs[what]; exists {
		return d.Errf("duplicate count %s", what)
	}
	if q.Costs == nil {
		q.Costs = map[string]int{}
	}
	q.Costs[what] = cost
	return nil
}

// checked are quotas as they are counted, if nothing is wrong with them.
func checked(configured []Quota) (all []quota.Quota, err error) {
	for i, q := range configured {
		counted := quota.Quota{Name: q.Name, By: quota.By(q.By), Limit: q.Limit, Window: time.Duration(q.Window), Costs: q.Costs}
		if err := counted.Check(); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(configured[:i], func(other Quota) bool { return other.Name == q.Name }) {
			return nil, fmt.Errorf("duplicate quota %s", q.Name)
		}
		all = append(all, counted)
	}
	return all, nil
}

// inUse keeps what was used over reloads, by issuer.
var inUse = caddy.NewUsagePool()

var refusals = metrics.NewCounters("quota_refusals_total", "Requests that a quota refused.", "quota")

// Quotas are those of an app, which count on from those of the previous configuration. Nil are none.
type Quotas struct {
	Set *quota.Set // counts

	issuer string
}

// New returns the quotas of an issuer; nil if none are configured. Gateways that share the store count together.
func New(configured []Quota, issuer string, in store.Store, keys quota.MAC) (*Quotas, error) {
	all, err := checked(configured)
	if len(all) == 0 || err != nil {
		return nil, err
	}
	counts, _, err := inUse.LoadOrNew(issuer, func() (caddy.Destructor, error) { return quota.NewCounts(), nil })
	if err != nil {
		return nil, err
	}
	var shared *quota.Shared
	if store.IsShared(in) {
		shared = &quota.Shared{Store: in, Keys: keys}
	}
	return &Quotas{quota.NewSet(all, counts.(*quota.Counts), shared, func(name string) { refusals.WithLabelValues(name).Inc() }), issuer}, nil
}

// Release leaves the counts to the next configuration.
func (q *Quotas) Release() error {
	if q == nil {
		return nil
	}
	_, err := inUse.Delete(q.issuer)
	return err
}

// CountToken counts a request to the token endpoint, by its network before its client is known. A client without secret or key
// counts apart in each network: anybody can name it, and must not use up what others may.
func (q *Quotas) CountToken(w http.ResponseWriter, r *http.Request, clientID string, public bool) error {
	if q == nil {
		return nil
	}
	by, whose := quota.Client, quota.Whose(q.issuer, clientID)
	switch network := requester.NetworkOf(r); {
	case clientID == "":
		by, whose = quota.Network, network
	case public:
		whose = quota.Whose(q.issuer, clientID, network)
	}
	err := q.Set.Take(r.Context(), w.Header(), by, whose, quota.Token)
	refusal, refused := errors.AsType[*quota.Refusal](err)
	if !refused {
		return err
	}
	if !refusal.First {
		audit.FromContext(r.Context()).Refused = true // one line a minute says so
	}
	return &oauth2.Error{
		Code: "temporarily_unavailable", Status: http.StatusTooManyRequests, Description: refusal.Diagnostics(), Err: refusal,
	}
}
