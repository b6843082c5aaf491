package enforce_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/server"
)

// TestAsked checks what the FHIR server is asked: of the client's headers none that would change what is judged.
func TestAsked(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...)
	var asked http.Header
	g.server.Seen = func(r *http.Request) { asked = r.Header }
	r := httptest.NewRequest(http.MethodGet, "/fhir/R4/Observation/a1", nil)
	for _, name := range []string{
		"If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "If-None-Exist", "If-Range", "Range",
		"Prefer", "X-Cascade", "X-Provenance",
	} {
		r.Header.Set(name, "x")
	}
	r.Header.Set("Accept", "application/fhir+xml, */*;q=0.1")
	r.Header.Set("Accept-Encoding", "gzip")
	r.Header.Set("X-Request-Id", "1")
	if got := g.send(patientA, r); got.StatusCode != http.StatusOK {
		t.Fatalf("status %d", got.StatusCode)
	}
	if asked.Get("Accept") != "application/fhir+json" || asked.Get("Accept-Encoding") != "identity" || asked.Get("X-Request-Id") != "1" {
		t.Errorf("asked with %v", asked)
	}
	for name, values := range asked {
		if values[0] == "x" {
			t.Errorf("%s was passed on", name)
		}
	}
}

// TestAskedUnrestricted checks that a response that passes is requested as a whole and without compression: links and addresses
// in it are rewritten.
func TestAskedUnrestricted(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...)
	var asked http.Header
	g.server.Seen = func(r *http.Request) { asked = r.Header }
	r := httptest.NewRequest(http.MethodGet, "/fhir/R4/Observation/a1", nil)
	r.Header = http.Header{"Range": {"bytes=0-6"}, "If-Range": {`"1"`}, "Accept-Encoding": {"gzip"}, "If-None-Match": {`W/"9"`}}
	if got := g.send(staff, r); got.StatusCode != http.StatusOK {
		t.Fatalf("status %d", got.StatusCode)
	}
	if asked.Get("If-None-Match") != `W/"9"` || asked.Get("Accept-Encoding") != "identity" || asked.Get("Range") != "" || asked.Get("If-Range") != "" {
		t.Errorf("asked with %v", asked)
	}
}

// TestWithheld is over answers that cannot be judged.
func TestWithheld(t *testing.T) {
	t.Parallel()
	const own = `{"resourceType":"Observation","id":"a1","subject":{"reference":"Patient/a"}}`
	for _, tt := range []struct {
		name, media, body string
		header, status    int
	}{
		{"own", "application/fhir+json", own, 200, 200},
		{"JSON by another name", "application/json; charset=utf-8", own, 200, 200},
		{"XML", "application/fhir+xml", "<Observation/>", 200, 502},
		{"no type", "", own, 200, 502},
		{"cut off", "application/fhir+json", own[:len(own)-1], 200, 502},
		{"more behind", "application/fhir+json", own + own, 200, 502},
		{"a name twice", "application/fhir+json", strings.Replace(own, `"id"`, `"id":"b1","id"`, 1), 200, 502},
		{"no type of resource", "application/fhir+json", `{"id":"a1"}`, 200, 502},
		{"another resource", "application/fhir+json", strings.Replace(own, "a1", "a2", 1), 200, 404},
		{"another type", "application/fhir+json", strings.Replace(own, "Observation", "Condition", 1), 200, 404},
		{"another patient's", "application/fhir+json", strings.Replace(own, "Patient/a", "Patient/b", 1), 200, 404},
		{"too long", "application/fhir+json", own + strings.Repeat(" ", 1000), 200, 502},
		{"deleted", "application/fhir+json", `{"resourceType":"OperationOutcome"}`, 410, 404},
		{"not there", "application/fhir+json", `{"resourceType":"OperationOutcome"}`, 404, 404},
		{"refused", "application/fhir+json", own, 400, 404},
		{"credentials required", "application/fhir+json", own, 401, 502},
		{"failed", "application/fhir+json", own, 500, 500},
		{"overloaded", "application/fhir+json", own, 503, 503},
		{"too many requests", "application/fhir+json", own, 429, 429},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t)
			g.Limits = server.Limits{Answer: 1000}
			g.server.Answers = map[string]http.HandlerFunc{"Observation/a1": func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tt.media)
				w.WriteHeader(tt.header)
				_, _ = w.Write([]byte(tt.body))
			}}
			if got := g.get(patientA, "Observation/a1"); got.StatusCode != tt.status {
				t.Errorf("status %d, want %d", got.StatusCode, tt.status)
			}
		})
	}
}

// handling is a next handler in a function.
type handling func(w http.ResponseWriter, r *http.Request) error

// ServeHTTP implements message.NextHandler.
func (f handling) ServeHTTP(w http.ResponseWriter, r *http.Request) error { return f(w, r) }

// read reads an own record through a handler.
func (f handling) read(t *testing.T, limit int64) (*httptest.ResponseRecorder, error) {
	t.Helper()
	g := newGateway(t)
	g.Limits = server.Limits{Answer: limit}
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/fhir/R4/Observation/a1", nil)
	return w, g.Serve(w, r, f, enforce.Bearer{Rights: access.New(patientA, g.Shared)})
}

// TestNextHandler is over handlers that do not answer as they should.
func TestNextHandler(t *testing.T) {
	t.Parallel()
	failure := errors.New("no connection")
	if _, err := handling(func(http.ResponseWriter, *http.Request) error { return failure }).read(t, 0); !errors.Is(err, failure) {
		t.Errorf("a handler's error became %v", err)
	}
	_, err := handling(func(http.ResponseWriter, *http.Request) error { return nil }).read(t, 0)
	if refusal, ok := errors.AsType[*guard.Error](err); !ok || refusal.Status != http.StatusBadGateway {
		t.Errorf("no answer became %v", err)
	}
	_, err = handling(func(w http.ResponseWriter, _ *http.Request) error {
		if _, err := w.Write(make([]byte, 200)); err != nil {
			panic(http.ErrAbortHandler) // as httputil.ReverseProxy does
		}
		return nil
	}).read(t, 100)
	if refusal, ok := errors.AsType[*guard.Error](err); !ok || refusal.Status != http.StatusBadGateway || !errors.Is(err, message.ErrWithheld) {
		t.Errorf("an answer that was aborted became %v", err)
	}
}

// TestPanic checks that only the abort that the guard has caused is none.
func TestPanic(t *testing.T) {
	t.Parallel()
	for _, cause := range []any{http.ErrAbortHandler, "a bug"} {
		func() {
			defer func() {
				if got := recover(); got != cause {
					t.Errorf("%v became %v", cause, got)
				}
			}()
			_, err := handling(func(http.ResponseWriter, *http.Request) error { panic(cause) }).read(t, 0)
			t.Errorf("%v became %v", cause, err)
		}()
	}
}

// TestRequests checks that one request causes no more than may be.
func TestRequests(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...)
	g.Limits = server.Limits{Requests: 2}
	asked := 0
	g.server.Seen = func(*http.Request) { asked++ }
	for target, want := range map[string]int{"Observation/a1": 200, "?_type=Patient,Observation,Device&_sort=_lastUpdated": 403} {
		asked = 0
		if got := g.get(patientA, target); got.StatusCode != want || asked > 2 {
			t.Errorf("%s: status %d after %d requests", target, got.StatusCode, asked)
		}
	}
}
