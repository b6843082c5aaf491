package bearer

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
)

// A request without a token reaches the next handler without a body, credentials and gateway cookies. This also applies if
// scopes are off and the request for metadata is forwarded.
func TestPublicRequestCarriesNothing(t *testing.T) {
	t.Parallel()
	g := &gate{location: apiLocation{path: "/fhir/R4"}, headers: guard.NewIdentityHeaders(nil, []string{"*"}), forwardToken: true}
	g.authenticator = authenticator{location: g.location}
	r := httptest.NewRequest(http.MethodGet, "/fhir/R4/metadata", strings.NewReader("body"))
	r.Header.Set("Authorization", "Bearer x")
	r.Header.Set("Cookie", browser.SessionCookie+"=secret; other=1")
	r = withReplacer(r)
	passed := false
	err := g.serve(httptest.NewRecorder(), r, caddyhttp.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) error {
		passed = true
		body, err := io.ReadAll(r.Body)
		if len(body) > 0 || r.ContentLength > 0 || r.Header.Get("Authorization") != "" || strings.Contains(r.Header.Get("Cookie"), "secret") {
			t.Errorf("body %q of %d bytes, header %v", body, r.ContentLength, r.Header)
		}
		return err
	}))
	if err != nil || !passed {
		t.Errorf("passed: %v, %v", passed, err)
	}
}

// The gate rejects all other requests without a token.
func TestGateWithoutToken(t *testing.T) {
	t.Parallel()
	g := &gate{location: apiLocation{path: "/fhir/R4"}, headers: guard.NewIdentityHeaders(nil, nil)}
	g.authenticator = authenticator{location: g.location}
	err := g.serve(httptest.NewRecorder(), withReplacer(httptest.NewRequest(http.MethodGet, "/fhir/R4/Patient", nil)),
		caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return errors.New("passed") }))
	if refused, ok := errors.AsType[caddyhttp.HandlerError](err); !ok || refused.StatusCode != http.StatusUnauthorized {
		t.Error(err)
	}
}

// countingAdmission counts its calls. It rejects all requests starting with the call of the given name.
type countingAdmission struct {
	rejects string
	calls   []string
}

var errRejected = caddyhttp.Error(http.StatusTooManyRequests, errors.New("quota"))

func (a *countingAdmission) call(name string) error {
	a.calls = append(a.calls, name)
	if a.rejects == name {
		return errRejected
	}
	return nil
}

func (a *countingAdmission) AdmitUnverified(http.ResponseWriter, *http.Request) error {
	return a.call("any")
}

func (a *countingAdmission) Admit(_ http.ResponseWriter, _ *http.Request, t *guard.Token) error {
	return a.call(t.Subject)
}

func (a *countingAdmission) RecordDecision(*http.Request, enforce.Bearer, enforce.Decision) {
	_ = a.call("decided")
}

// throttledCount returns the number of throttled requests.
func throttledCount(t *testing.T) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(decisionCounts[decisionThrottled])
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families[0].GetMetric()[0].GetCounter().GetValue()
}

// An admission receives each request twice, before and after its token is verified, and may reject it.
func TestAdmission(t *testing.T) {
	for _, tt := range []struct {
		rejects string
		calls   []string
		passes  bool
	}{
		{"", []string{"any", "alice"}, true},
		{"any", []string{"any"}, false},
		{"alice", []string{"any", "alice"}, false},
	} {
		t.Run(tt.rejects, func(t *testing.T) {
			a := &countingAdmission{rejects: tt.rejects}
			g := &gate{location: apiLocation{path: "/fhir/R4"}, headers: guard.NewIdentityHeaders(nil, nil), signIn: new(SignInPolicy), admissions: []Admission{a}}
			passed := false
			next := caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { passed = true; return nil })
			r := withReplacer(httptest.NewRequest(http.MethodGet, "/fhir/R4/Patient", nil))
			before := throttledCount(t)
			err := g.checkRequest(httptest.NewRecorder(), r)
			if err == nil {
				err = g.serveAuthorized(httptest.NewRecorder(), r, next, &guard.Token{Subject: "alice"})
			}
			if !slices.Equal(a.calls, tt.calls) || passed != tt.passes || (err == nil) != tt.passes || err != nil && !errors.Is(err, errRejected) {
				t.Errorf("calls %v, passed %t: %v", a.calls, passed, err)
			}
			if n := throttledCount(t) - before; (n == 1) == tt.passes {
				t.Errorf("%v throttled", n)
			}
		})
	}
}

// An admission receives each decision based on scopes after the audit log.
func TestDecisionsOfAdmission(t *testing.T) {
	t.Parallel()
	a := new(countingAdmission)
	decided := notifyAdmissions(func(*http.Request, enforce.Bearer, enforce.Decision) { _ = a.call("recorded") }, []Admission{a})
	if decided(nil, enforce.Bearer{}, enforce.Decision{}); !slices.Equal(a.calls, []string{"recorded", "decided"}) {
		t.Error(a.calls)
	}
}

func TestRefusalIsCounted(t *testing.T) {
	for _, tt := range []struct {
		err  *guard.Error
		want Decision
	}{
		{&guard.Error{Status: http.StatusUnauthorized, Err: guard.ErrNoToken}, decisionNoToken},
		{&guard.Error{Status: http.StatusUnauthorized, Err: fmt.Errorf("x: %w", guard.ErrExpired)}, decisionExpired},
		{&guard.Error{Status: http.StatusUnauthorized, Err: guard.ErrInvalidSignature}, decisionInvalid},
		{&guard.Error{Status: http.StatusForbidden}, decisionForbidden},
		{&guard.Error{Status: http.StatusNotFound}, decisionForbidden},
		{&guard.Error{Status: http.StatusServiceUnavailable, Err: guard.ErrUnavailable}, decisionUnavailable},
		{&guard.Error{Status: http.StatusBadRequest, Err: guard.ErrAmbiguousPath}, decisionBadRequest},
	} {
		if got := decisionFor(tt.err); got != tt.want || decisionCounts[got] == nil {
			t.Errorf("%+v is counted as %q", tt.err, got)
		}
	}
}

func BenchmarkDecided(b *testing.B) {
	for b.Loop() {
		countDecision(decisionAllowed)
	}
}

// Counting a request does not allocate.
func TestDecidingAllocatesNothing(t *testing.T) {
	expired := &guard.Error{Status: http.StatusUnauthorized, Err: guard.ErrExpired}
	if n := testing.AllocsPerRun(100, func() { countDecision(decisionAllowed); countDecision(decisionFor(expired)) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
