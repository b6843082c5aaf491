package quota

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

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
