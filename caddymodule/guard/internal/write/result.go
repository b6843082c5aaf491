package write

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// put is the call that writes a version.
func (w *write) put(body []byte, etag string) message.Call {
	c := message.Call{Method: http.MethodPut, Path: w.i.Type + "/" + w.i.ID, Header: w.headers(), Body: body}
	if etag != "" {
		c.Header.Set("If-Match", etag)
	}
	return c
}

// post is the call that creates a resource.
func (w *write) post(body []byte) message.Call {
	return message.Call{Method: http.MethodPost, Path: w.i.Type, Header: w.headers(), Body: body}
}

// headers are what the FHIR server is told along with a write: of what the body is, and how much the client wants back.
func (w *write) headers() http.Header {
	header := http.Header{"Content-Type": {message.TypeJSON}}
	for _, value := range w.c.Header.Values("Prefer") {
		for _, preference := range []string{"return=minimal", "return=representation", returnOutcome} {
			if strings.Contains(value, preference) {
				header.Set("Prefer", preference)
			}
		}
	}
	for _, name := range []string{"X-Cascade", "X-Provenance"} { // newWrite has checked them
		if value := w.c.Header.Get(name); value != "" {
			header.Set(name, value)
		}
	}
	return header
}

// forward has the FHIR server do what the client asked for, on the condition that the client set.
func (w *write) forward(ctx context.Context) (*message.Answer, error) {
	query, ifNoneExist := w.forwardedCriteria()
	c := w.c
	c.Header, c.Query = w.headers(), query
	if ifNoneExist != nil {
		c.Header["If-None-Exist"] = ifNoneExist
	}
	for _, name := range []string{"If-Match", "If-None-Match"} {
		if values := w.c.Header.Values(name); len(values) > 0 {
			c.Header[name] = values
		}
	}
	if media := w.c.Header.Get("Content-Type"); media != "" {
		c.Header.Set("Content-Type", media)
	}
	return w.send(ctx, c)
}

// send has the FHIR server write, and tells the client what came of it as far as it may know. In a transaction, it waits
// for the other entries.
func (w *write) send(ctx context.Context, c message.Call) (*message.Answer, error) {
	if w.in.Collect != nil {
		return w.in.Collect(w.result(), c)
	}
	a, err := w.in.Server.Ask(ctx, c)
	if err != nil {
		return nil, err
	}
	return w.result().Told(ctx, a)
}

func (w *write) result() Result {
	return Result{Judge: w.in.Judge, at: w.in.At, C: w.c, i: w.i, Confined: w.confined, server: w.in.Server}
}

// Told is what the client is told of the FHIR server's answer to a write.
func (w Result) Told(ctx context.Context, a *message.Answer) (*message.Answer, error) {
	if !a.Succeeded() {
		return w.failure(a)
	}
	if w.isConfined() {
		if err := w.checkDeleted(ctx); err != nil {
			return nil, err
		}
	}
	if w.wantsOutcome() {
		a = a.With(w.outcome(a))
		a.Said = true
		a.Header.Set("Content-Type", message.TypeJSON)
		return a, nil
	}
	if !w.isShown(ctx, a) {
		a = a.With(nil)
		a.Header.Del("X-Security-Context") // an element of a Binary
	}
	return a, nil
}

// returnOutcome is the preference for an OperationOutcome (R4 http.html#ops).
const returnOutcome = "return=OperationOutcome"

func (w Result) wantsOutcome() bool {
	return slices.ContainsFunc(w.C.Header.Values("Prefer"), func(v string) bool { return strings.Contains(v, returnOutcome) })
}

// outcome is what the client is told of a write as it has asked for it: that it is done, and what the FHIR server says of
// what was sent.
func (w Result) outcome(a *message.Answer) []byte {
	issues := []message.Issue{{Severity: "information", Code: "informational", Diagnostics: "The FHIR server has done the write."}}
	for _, i := range message.IssuesOf(a, w.C.Said()) {
		if i.Diagnostics != "" {
			issues = append(issues, i)
		}
	}
	text, _ := json.Marshal(map[string]any{"resourceType": "OperationOutcome", "issue": issues}) // strings never fail
	return text
}

// isShown reports whether an answer is the written resource, and one that the client may read. What cannot be judged is
// not shown; the write has been done all the same.
func (w Result) isShown(ctx context.Context, a *message.Answer) bool {
	grants := w.Judge.Rights().For(w.i.Type, smart.Read)
	if len(grants) == 0 || !a.IsJSON() {
		return false
	}
	res, err := resource.Parse(a.Body, w.at.Base)
	if err != nil || res.Type != w.i.Type || w.i.ID != "" && res.ID != w.i.ID {
		return false
	}
	ok, err := w.Judge.Covered(ctx, res, grants)
	return ok && err == nil
}

var (
	errConflict = errors.New("conflicts with the current version")
	errRefused  = errors.New("the FHIR server refuses the write")
)

// failure is what a client is told if the FHIR server has not written: the status, and what is wrong with what the client
// has sent. What a patch came to is told nobody who may not read it.
func (w Result) failure(a *message.Answer) (*message.Answer, error) {
	isPatch := w.i.Kind == interaction.Patch || w.i.Kind == interaction.ConditionalPatch
	if isPatch && len(w.Judge.Rights().For(w.i.Type, smart.Read)) == 0 {
		return nil, w.Refusal(a, nil)
	}
	s := w.C.Said()
	if outcome := message.Invalidated(a, s); outcome != nil {
		return outcome, nil
	}
	return nil, w.Refusal(a, s)
}

// Refusal is the server's refusal, with what it says of what the client has sent.
func (w Result) Refusal(a *message.Answer, s message.Said) error {
	cause := fmt.Errorf("%w: %d", errRefused, a.Status)
	switch status := a.Status; {
	case status == http.StatusTooManyRequests, status/100 == 5:
		return message.Failed(a)
	case status == http.StatusNotFound || status == http.StatusGone:
		return message.NotFound()
	case status == http.StatusConflict || status == http.StatusPreconditionFailed:
		return conflict(w.C.Header)
	case status/100 != 4, status == http.StatusUnauthorized, status == http.StatusProxyAuthRequired:
		return &guard.Error{Status: http.StatusBadGateway, Description: "The FHIR server could not write.", Err: cause}
	default:
		return &guard.Error{Status: status, Description: message.Explained(message.RefusesWrite, a, s), Err: cause}
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
