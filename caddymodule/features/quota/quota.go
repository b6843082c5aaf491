package quota

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
)

// HolderKind is the kind of holder to which a quota applies.
type HolderKind string

// Kinds of holders.
const (
	Client  HolderKind = "client"  // an app, identified by client_id
	Person  HolderKind = "person"  // the signed-in person, identified by sub
	Network HolderKind = "network" // an IPv4 address, or the /64 of an IPv6 address
)

// Kinds of requests that a quota can count, in addition to operations by name, such as $expand.
const (
	Request = "request" // a request to the FHIR API
	Token   = "token"   // a request to the token endpoint
)

// Quota limits the requests of each app, person or network per time window. Requests over the limit get 429 with Retry-After.
// Gateways with a shared store count together.
type Quota struct {
	// The name of the quota in RateLimit fields and metrics: lower-case letters, digits, `-` and `_`. Required.
	Name string `json:"name,omitempty"`

	// The kind of holder to which the quota applies: `client` (an app), `person`, or `network` (an IPv4 address, or the /64 of
	// an IPv6 address). Required.
	HolderKind HolderKind `json:"by,omitempty"`

	// The maximum total cost of the requests in any window. Required.
	Limit int `json:"limit,omitempty"`

	// The length of the window: from 1s to 31d, in whole seconds. Required.
	Window caddy.Duration `json:"window,omitempty"`

	// The cost of each kind of request: `request`, `token`, or an operation such as `$expand`. Other requests are free.
	// Default: each request to the FHIR API costs 1.
	Costs map[string]int `json:"costs,omitempty"`
}

// subdirectives parses quotas from a Caddyfile.
func subdirectives(to *[]Quota) (fields option.Block, repeatable []string) {
	return option.Block{"quota": func(d *caddyfile.Dispenser) error {
		var q Quota
		if err := q.parse(d); err != nil {
			return err
		}
		*to = append(*to, q)
		return option.WithLine(d, checkQuotas(*to))
	}}, []string{"quota"}
}

func (q *Quota) parse(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) != 4 {
		return d.Err("expected a name, client, person or network, a limit and a window, for example: quota apps client 1000 1m")
	}
	q.Name, q.HolderKind = args[0], HolderKind(args[1])
	if err := errors.Join(option.ParseNumber(&q.Limit)(args[2]), option.ParseDuration(&q.Window)(args[3])); err != nil {
		return d.WrapErr(err)
	}
	return option.Block{"count": q.parseCount}.Parse(d, "count")
}

// parseCount parses a kind of request and its cost.
func (q *Quota) parseCount(d *caddyfile.Dispenser) error {
	kind, costText, err := option.ParseOneOrTwo(d)
	if err != nil {
		return err
	}
	cost := 1
	if costText != "" {
		if cost, err = strconv.Atoi(costText); err != nil {
			return d.Errf("count %s: %q is not a number", kind, costText)
		}
	}
	if _, exists := q.Costs[kind]; exists {
		return d.Errf("duplicate count %s", kind)
	}
	if q.Costs == nil {
		q.Costs = map[string]int{}
	}
	q.Costs[kind] = cost
	return nil
}

// checkQuotas returns an error if a quota is invalid or two quotas have the same name.
func checkQuotas(quotas []Quota) error {
	for i, q := range quotas {
		if err := q.Check(); err != nil {
			return err
		}
		if slices.ContainsFunc(quotas[:i], func(other Quota) bool { return other.Name == q.Name }) {
			return fmt.Errorf("duplicate quota %s", q.Name)
		}
	}
	return nil
}

// Limits of a [Quota].
const (
	maxLimit  = 1_000_000_000
	minWindow = time.Second
	maxWindow = 31 * 24 * time.Hour
)

var (
	namePattern      = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}$`)
	operationPattern = regexp.MustCompile(`^\$[A-Za-z][A-Za-z0-9-]{0,63}$`)
)

// Check returns an error if the quota is invalid.
func (q *Quota) Check() error {
	window := time.Duration(q.Window)
	switch {
	case !namePattern.MatchString(q.Name):
		return fmt.Errorf("quota %q: the name must be up to 32 lower-case letters, digits, - and _, and start with a letter or digit", q.Name)
	case !slices.Contains([]HolderKind{Client, Person, Network}, q.HolderKind):
		return fmt.Errorf("quota %s: %q is not client, person or network", q.Name, q.HolderKind)
	case q.Limit < 1 || q.Limit > maxLimit:
		return fmt.Errorf("quota %s: the limit must be between 1 and %d", q.Name, maxLimit)
	case window < minWindow || window > maxWindow || window%time.Second != 0:
		return fmt.Errorf("quota %s: the window must be from 1s to 31d, in whole seconds", q.Name)
	}
	for kind, cost := range q.Costs {
		if err := q.checkCost(kind, cost); err != nil {
			return fmt.Errorf("quota %s: %w", q.Name, err)
		}
	}
	return nil
}

var errPersonTokenQuota = errors.New("count token: a quota for persons cannot count token requests, because the person is not yet identified")

func (q *Quota) checkCost(requestKind string, cost int) error {
	switch {
	case requestKind != Request && requestKind != Token && !operationPattern.MatchString(requestKind):
		return fmt.Errorf("unknown request kind %q: use %s, %s, or an operation such as $expand", requestKind, Request, Token)
	case requestKind == Token && q.HolderKind == Person:
		return errPersonTokenQuota
	case cost < 1 || cost > q.Limit:
		return fmt.Errorf("count %s: the cost must be between 1 and the limit", requestKind)
	}
	return nil
}

// cost returns the cost of a request; 0 if the quota does not count it.
func (q *Quota) cost(requestKind string) int {
	switch cost, ok := q.Costs[requestKind]; {
	case ok:
		return cost
	case requestKind == Token:
		return 0
	case q.Costs == nil:
		return 1
	}
	return q.Costs[Request]
}

// HolderID returns the identifier of a holder with the given parts.
func HolderID(parts ...string) string { return strings.Join(parts, "\x00") }

// RequestKind returns the kind of a request to the FHIR API from its path.
func RequestKind(path string) string {
	if i := strings.LastIndexByte(path, '/'); strings.HasPrefix(path[i+1:], "$") {
		return path[i+1:]
	}
	return Request
}

// limit is a quota prepared for counting.
type limit struct {
	Quota

	localParts, sharedParts partitioner
	policy                  string
}

func newLimit(q Quota) *limit {
	window := time.Duration(q.Window)
	return &limit{q, newPartitioner(window, localPartCount), newPartitioner(window, sharedPartCount), policyField(q)}
}

// policyField returns the RateLimit-Policy field of a quota (draft-ietf-httpapi-ratelimit-headers-10, §3). It omits the
// partition key, pk.
func policyField(q Quota) string {
	return fmt.Sprintf("%q;q=%d;w=%d", q.Name, q.Limit, int64(time.Duration(q.Window)/time.Second))
}

// quotaState is the state of a holder after a request.
type quotaState struct {
	exceeded  bool
	remaining int
	wait      time.Duration // time until a rejected request would be admitted; if admitted, time until some usage expires
}

const (
	unreportedShare = 128 // fraction (1/n) of the limit that a gateway admits without reporting it to the store
	leaseShare      = 16  // fraction (1/n) of the remaining quota that a gateway may lease
	minLeaseShare   = 64  // fraction (1/n) of the limit that it may always lease, up to half of the remaining quota
	minReturnShare  = 256 // minimum fraction (1/n) of the limit that is returned to the store

	minLease, maxLease = 100 * time.Millisecond, 10 * time.Second // bounds of the duration of a lease
)

func (l *limit) leaseDuration() time.Duration {
	return min(max(l.sharedParts.partLength, minLease), maxLease)
}

// maxLeaseSize returns how much of the remaining quota, free, a gateway may lease.
func (l *limit) maxLeaseSize(free int) int {
	return max(free/leaseShare, min(free/2, l.Limit/minLeaseShare))
}

// setHeaders adds the RateLimit fields of a quota (draft-ietf-httpapi-ratelimit-headers-10, §3, §4).
func (l *limit) setHeaders(to http.Header, state quotaState) {
	to.Add("RateLimit-Policy", l.policy)
	field := make([]byte, 0, 64)
	field = append(strconv.AppendQuote(field, l.Name), ";r="...)
	field = append(strconv.AppendInt(field, int64(state.remaining), 10), ";t="...)
	to.Add("RateLimit", string(strconv.AppendInt(field, ceilSeconds(state.wait), 10)))
}

// ceilSeconds rounds up to whole seconds, so that clients do not retry too early.
func ceilSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// ExceededError is returned when a quota is used up.
type ExceededError struct {
	Quota           string     // name of the quota
	HolderKind      HolderKind // whom the quota limits, e.g. [Client] or [Network]
	FirstInInterval bool       // whether to log it: the first rejection of this holder within a minute

	wait int64 // seconds
}

// exceededError returns the error for a rejected request. It sets Retry-After (RFC 6585 §4) to the parameter t of RateLimit.
func (l *limit) exceededError(to http.Header, at quotaState, first bool) *ExceededError {
	r := &ExceededError{l.Name, l.HolderKind, first, max(1, ceilSeconds(at.wait))}
	to.Set("Retry-After", strconv.FormatInt(r.wait, 10))
	return r
}

// Error implements error.
func (r *ExceededError) Error() string {
	return fmt.Sprintf("quota %s of the %s exceeded", r.Quota, r.HolderKind)
}

// IssueType returns the code of the OperationOutcome.
func (r *ExceededError) IssueType() string { return "throttled" }

// Diagnostics returns the message for the developer of the client. It must not contain quotation marks, which error_description
// does not allow (RFC 6749 §5.2).
func (r *ExceededError) Diagnostics() string {
	return fmt.Sprintf("The quota %s of this %s is exceeded. Try again in %d s.", r.Quota, r.HolderKind, r.wait)
}
