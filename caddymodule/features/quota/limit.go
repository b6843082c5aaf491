package quota

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// limit is a quota as it is counted.
type limit struct {
	Quota

	local, shared ruler
	policy        string
}

func newLimit(q Quota) *limit {
	window := time.Duration(q.Window)
	return &limit{q, newRuler(window, localParts), newRuler(window, sharedParts), policyOf(q)}
}

// policyOf is the quota in RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers-10, §3). The partition key, pk, is omitted.
func policyOf(q Quota) string {
	return fmt.Sprintf("%q;q=%d;w=%d", q.Name, q.Limit, int64(time.Duration(q.Window)/time.Second))
}

// standing is how a holder stands after a request.
type standing struct {
	refused bool
	left    int
	wait    time.Duration // until the request would be let in, or else until some of what was used is back
}

const (
	untold     = 128 // fraction (1/n) of a limit that a gateway admits before it updates the store
	leaseShare = 16  // largest fraction (1/n) of the remaining quota that a gateway leases,
	leastShare = 64  // and fraction of the limit that it may always lease, up to half of the remaining quota
	keptShare  = 256 // the part of the limit that is not worth giving back

	minLease, maxLease = 100 * time.Millisecond, 10 * time.Second // how long it keeps that
)

func (l *limit) leaseTime() time.Duration { return min(max(l.shared.part, minLease), maxLease) }

// share returns how much of the remaining quota may be leased.
func (l *limit) share(free int) int { return max(free/leaseShare, min(free/2, l.Limit/leastShare)) }

// tell adds the RateLimit fields (§3, §4) of a quota to those of others.
func (l *limit) tell(to http.Header, at standing) {
	to.Add("RateLimit-Policy", l.policy)
	field := make([]byte, 0, 64)
	field = append(strconv.AppendQuote(field, l.Name), ";r="...)
	field = append(strconv.AppendInt(field, int64(at.left), 10), ";t="...)
	to.Add("RateLimit", string(strconv.AppendInt(field, seconds(at.wait), 10)))
}

// seconds are whole ones, rounded up, so that nobody tries again too early.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// Refusal says that a quota is used up.
type Refusal struct {
	Quota string // its name
	By    By     // whom it counts
	First bool   // in a minute, for this holder: worth noting

	wait int64 // seconds
}

// refusal is that of a request, with Retry-After (RFC 6585 §4), which is the t of RateLimit.
func (l *limit) refusal(to http.Header, at standing, first bool) *Refusal {
	r := &Refusal{l.Name, l.By, first, max(1, seconds(at.wait))}
	to.Set("Retry-After", strconv.FormatInt(r.wait, 10))
	return r
}

// Error implements error.
func (r *Refusal) Error() string {
	return fmt.Sprintf("the quota %s of the %s is used up", r.Quota, r.By)
}

// IssueType is the code of an OperationOutcome.
func (r *Refusal) IssueType() string { return "throttled" }

// Diagnostics is what the client's developer may know. It has no quotation marks, which an error_description must not have (RFC 6749 §5.2).
func (r *Refusal) Diagnostics() string {
	return fmt.Sprintf("The quota %s of this %s is used up. Try again in %d s.", r.Quota, r.By, r.wait)
}
