package quota

import (
	"fmt"
	"time"
)

// limit is a quota as it is counted.
type limit struct {
	Quota

	local, shared ruler
	policy        string
}

func newLimit(q Quota) *limit {
	return &limit{q, newRuler(q.Window, localParts), newRuler(q.Window, sharedParts), policyOf(q)}
}

// policyOf is the quota in RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers-10, §3). Which partition a holder has, pk, is not told.
func policyOf(q Quota) string {
	return fmt.Sprintf("%q;q=%d;w=%d", q.Name, q.Limit, int64(q.Window/time.Second))
}

// standing is how a holder stands after a request.
type standing struct {
	refused bool
	left    int
	wait    time.Duration // until the request would be let in, or else until some of what was used is back
}

const (
	untold     = 128 // the part of a limit that a gateway lets pass before it tells the store
	leaseShare = 16  // the part of what is left that a gateway takes at most,
	leastShare = 64  // and the part of the limit that it may take anyway, up to half of what is left
	keptShare  = 256 // the part of the limit that is not worth giving back

	minLease, maxLease = 100 * time.Millisecond, 10 * time.Second // how long it keeps that
)

func (l *limit) leaseTime() time.Duration { return min(max(l.shared.part, minLease), maxLease) }

// share is how much of what is left may be leased.
func (l *limit) share(free int) int { return max(free/leaseShare, min(free/2, l.Limit/leastShare)) }
