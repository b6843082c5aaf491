package enforce

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// result is what the client is told of a write.
type result struct {
	judge writeJudging
	at    addresses
	c     call // the client's
	i     interaction.Interaction
}

func (w *write) result() result { return result{w.in.judge, w.in.at, w.c, w.i} }

// told is what the client is told of the FHIR server's answer to a write.
func (w result) told(ctx context.Context, a *answer) (*answer, error) {
	if !a.succeeded() {
		return w.failure(a)
	}
	if w.wantsOutcome() {
		a = a.with(w.outcome(a))
		a.said = true
		a.header.Set("Content-Type", typeJSON)
		return w.at.localize(a), nil
	}
	if !w.isShown(ctx, a) {
		a = a.with(nil)
		a.header.Del("X-Security-Context") // an element of a Binary
	}
	return w.at.localize(a), nil
}

// returnOutcome is the preference for an OperationOutcome (R4 http.html#ops).
const returnOutcome = "return=OperationOutcome"

func (w result) wantsOutcome() bool {
	return slices.ContainsFunc(w.c.header.Values("Prefer"), func(v string) bool { return strings.Contains(v, returnOutcome) })
}

// outcome is what the client is told of a write as it has asked for it: that it is done, and what the FHIR server says of
// what was sent.
func (w result) outcome(a *answer) []byte {
	issues := []issue{{Severity: "information", Code: "informational", Diagnostics: "The FHIR server has done the write."}}
	for _, i := range issuesOf(a, w.c.said()) {
		if i.Diagnostics != "" {
			issues = append(issues, i)
		}
	}
	text, _ := json.Marshal(map[string]any{"resourceType": "OperationOutcome", "issue": issues}) // strings never fail
	return text
}

// isShown reports whether an answer is the written resource, and one that the client may read. What cannot be judged is
// not shown; the write has been done all the same.
func (w result) isShown(ctx context.Context, a *answer) bool {
	grants := w.judge.Rights().For(w.i.Type, smart.Read)
	if len(grants) == 0 || !a.isJSON() {
		return false
	}
	res, err := resource.Parse(a.body, w.at.base)
	if err != nil || res.Type != w.i.Type || w.i.ID != "" && res.ID != w.i.ID {
		return false
	}
	ok, err := w.judge.Covered(ctx, res, grants)
	return ok && err == nil
}

var (
	errConflict = errors.New("conflicts with the current version")
	errRefused  = errors.New("the FHIR server refuses the write")
)

// failure is what a client is told if the FHIR server has not written: the status, and what is wrong with what the client
// has sent. What a patch came to is told nobody who may not read it.
func (w result) failure(a *answer) (*answer, error) {
	isPatch := w.i.Kind == interaction.Patch || w.i.Kind == interaction.ConditionalPatch
	if isPatch && len(w.judge.Rights().For(w.i.Type, smart.Read)) == 0 {
		return nil, w.refusal(a, nil)
	}
	s := w.c.said()
	if outcome := invalidated(a, s); outcome != nil {
		return outcome, nil
	}
	return nil, w.refusal(a, s)
}

// refusal is the server's refusal, with what it says of what the client has sent.
func (w result) refusal(a *answer, s said) error {
	cause := fmt.Errorf("%w: %d", errRefused, a.status)
	switch status := a.status; {
	case status == http.StatusTooManyRequests, status/100 == 5:
		return failed(a)
	case status == http.StatusNotFound || status == http.StatusGone:
		return notFound()
	case status == http.StatusConflict || status == http.StatusPreconditionFailed:
		return conflict(w.c.header)
	case status/100 != 4, status == http.StatusUnauthorized, status == http.StatusProxyAuthRequired:
		return &guard.Error{Status: http.StatusBadGateway, Description: "The FHIR server could not write.", Err: cause}
	default:
		return &guard.Error{Status: status, Description: explained(refusesWrite, a, s), Err: cause}
	}
}

// conflict is the status for a client that set a condition, or for one that did not (RFC 9110 §13.1.1, §15.5.10).
func conflict(header http.Header) error {
	refusal := &guard.Error{
		Status: http.StatusConflict, Err: errConflict,
		Description: "The resource was changed in the meantime, or others refer to it.",
	}
	if header.Get("If-Match") != "" {
		refusal.Status = http.StatusPreconditionFailed
	}
	return refusal
}
