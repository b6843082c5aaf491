package enforce_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/capability"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fairmemory"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirserver"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// paddedObservation returns an Observation of patient a with the given length in bytes.
func paddedObservation(length int) string {
	text := `{"resourceType":"Observation","id":"a1","subject":{"reference":"Patient/a"},"note":[{"text":"`
	return text + strings.Repeat("x", length-len(text)-4) + `"}]}`
}

// searchBundle returns a searchset Bundle of resources.
func searchBundle(resources ...string) string {
	return `{"resourceType":"Bundle","type":"searchset","total":1,"entry":[{"search":{"mode":"match"},"resource":` +
		strings.Join(resources, `},{"search":{"mode":"match"},"resource":`) + `}]}`
}

// dripBody returns a handler that writes body in small pieces, like a proxy.
func dripBody(body string) handler {
	return func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("Content-Type", "application/fhir+json")
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		for rest := []byte(body); len(rest) > 0; {
			n := min(1000, len(rest))
			if _, err := w.Write(rest[:n]); err != nil {
				panic(http.ErrAbortHandler) // as httputil.ReverseProxy does
			}
			rest = rest[n:]
		}
		return nil
	}
}

// serve sends a request through the gateway to a handler and returns the resulting status.
func (g *gateway) serve(w http.ResponseWriter, h access.Holder, r *http.Request, next handler) (int, error) {
	err := g.Serve(w, r, next, enforce.Bearer{Rights: access.New(h, g.TypeRules)})
	if refusal, ok := errors.AsType[*guard.Error](err); ok {
		return refusal.Status, err
	}
	if recorder, ok := w.(*httptest.ResponseRecorder); ok && err == nil {
		return recorder.Code, nil
	}
	return 0, err
}

// Single requests succeed with the listed minimum memory. Afterwards, all memory is released.
func TestMemory(t *testing.T) {
	t.Parallel()
	const length = 10_000
	body, found := paddedObservation(length), searchBundle(paddedObservation(length))
	entry := `{"request":{"method":"GET","url":"Observation/a1"}}`
	batch := `{"resourceType":"Bundle","type":"batch","entry":[` + strings.Repeat(entry+",", 2) + entry + `]}`
	transaction := strings.Replace(batch, "batch", "transaction", 1)
	for _, tt := range []struct {
		name, method, path, body string
		holder                   access.Holder
		answer                   string
		takes                    int64 // minimum memory in bytes
	}{
		{"read", http.MethodGet, "Observation/a1", "", patientA, body, 2 * length},
		{"search by two parameters", http.MethodGet, "Observation", "", patientA, found, 4 * int64(len(found))},
		{"search that passes", http.MethodGet, "Observation", "", clinician, found, 2 * int64(len(found))},
		{"operation", http.MethodGet, "Observation/$lastn", "", patientA, found, 2 * int64(len(found))},
		{"create", http.MethodPost, "Observation", body, patientA, body, 4 * length},
		{"search of two types", http.MethodGet, "?_type=Observation,Condition", "", patientA, found, 4 * int64(len(found))},
		{"transaction", http.MethodPost, "", transaction, patientA, body, 2*int64(len(transaction)) + 6*length},
		{"batch", http.MethodPost, "", batch, patientA, body, 2*int64(len(batch)) + 6*length},
	} {
		for size, want := range map[int64]int{tt.takes: http.StatusOK, tt.takes - 1: http.StatusForbidden} {
			t.Run(fmt.Sprintf("%s with %d", tt.name, size), func(t *testing.T) {
				t.Parallel()
				g := newGateway(t)
				g.Memory = fairmemory.New(size, fhirserver.MaxMemoryWait)
				r := newRequest(tt.method, "/fhir/R4/"+tt.path, "application/fhir+json", tt.body)
				w := httptest.NewRecorder()
				status, err := g.serve(w, tt.holder, r, dripBody(tt.answer))
				if strings.Contains(w.Body.String(), `"status":"403`) {
					status = http.StatusForbidden
				}
				if status != want {
					t.Errorf("status %d, want %d: %v", status, want, err)
				}
				if inUse := g.Memory.InUse(); inUse != 0 {
					t.Errorf("%d bytes in use at the end", inUse)
				}
			})
		}
	}
}

// While other requests use the memory, requests wait or are rejected.
func TestBusy(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]access.Holder{"judged": patientA, "passing": clinician} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := newGateway(t)
				g.Memory = fairmemory.New(1<<20, fhirserver.MaxMemoryWait)
				if err := g.Memory.Share().Grow(t.Context(), 1<<20-100, 0); err != nil {
					t.Fatal(err)
				}
				start, w := time.Now(), httptest.NewRecorder()
				w.Header().Set("X-Request-Id", "1")
				status, err := g.serve(w, h, httptest.NewRequest(http.MethodGet, "/fhir/R4/Observation", nil), dripBody(searchBundle(paddedObservation(1000))))
				refusal, _ := errors.AsType[*guard.Error](err)
				if status != http.StatusServiceUnavailable || !errors.Is(err, message.ErrBusy) || refusal.RetryAfter() != "10" {
					t.Fatalf("status %d: %v", status, err)
				}
				if waited := time.Since(start); waited != fhirserver.MaxMemoryWait {
					t.Errorf("answered after %v", waited)
				}
				if len(w.Header()) != 1 || w.Header().Get("X-Request-Id") != "1" {
					t.Errorf("headers %v of an answer that was withdrawn", w.Header())
				}
			})
		})
	}
}

// Memory is released, however a request ends.
func TestMemoryIsGivenBack(t *testing.T) {
	t.Parallel()
	begin := func(w http.ResponseWriter) { _, _ = io.WriteString(w, strings.Repeat(" ", 1000)) }
	for name, next := range map[string]func(cancel func()) handler{
		"the handler panics": func(func()) handler {
			return func(w http.ResponseWriter, _ *http.Request) error { begin(w); panic("a bug") }
		},
		"the handler fails": func(func()) handler {
			return func(w http.ResponseWriter, _ *http.Request) error { begin(w); return io.ErrUnexpectedEOF }
		},
		"the answer is no JSON": func(func()) handler {
			return func(w http.ResponseWriter, _ *http.Request) error { begin(w); return nil }
		},
		"the client leaves": func(cancel func()) handler {
			return func(w http.ResponseWriter, r *http.Request) error {
				begin(w)
				cancel()
				for {
					if _, err := io.WriteString(w, strings.Repeat(" ", 1000)); err != nil {
						return err
					}
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t)
			g.Memory = fairmemory.New(1<<20, fhirserver.MaxMemoryWait)
			if err := g.Memory.Share().Grow(t.Context(), 1<<20-10_000, 0); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			func() {
				defer func() { _ = recover() }()
				r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/fhir/R4/Observation/a1", nil)
				if status, _ := g.serve(httptest.NewRecorder(), patientA, r, next(cancel)); status == http.StatusOK {
					t.Error("status 200")
				}
			}()
			if inUse := g.Memory.InUse(); inUse != 1<<20-10_000 {
				t.Errorf("%d bytes in use at the end", inUse-(1<<20-10_000))
			}
		})
	}
}

// memoryRecorder records how much memory is in use when the client gets its response.
type memoryRecorder struct {
	*httptest.ResponseRecorder
	memory *fairmemory.Memory
	inUse  int64
}

func (w *memoryRecorder) Write(p []byte) (int, error) {
	w.inUse = w.memory.InUse()
	return w.ResponseRecorder.Write(p)
}

// While a client reads slowly, only its response uses memory.
func TestSlowClient(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	g.Memory = fairmemory.New(1<<20, fhirserver.MaxMemoryWait)
	w := &memoryRecorder{httptest.NewRecorder(), g.Memory, 0}
	if _, err := g.serve(w, patientA, httptest.NewRequest(http.MethodGet, "/fhir/R4/Observation", nil), dripBody(searchBundle(paddedObservation(1000)))); err != nil {
		t.Fatal(err)
	}
	if w.inUse != int64(w.Body.Len()) {
		t.Errorf("%d bytes in use for a response of %d", w.inUse, w.Body.Len())
	}
}

// stalledClient is a client that does not read: Write returns when the client disconnects.
type stalledClient struct {
	*httptest.ResponseRecorder
	disconnected chan struct{}
}

func (w stalledClient) Write([]byte) (int, error) {
	<-w.disconnected
	return 0, io.ErrClosedPipe
}

// Other clients do not wait while one client leaves unread responses as large as the memory.
func TestNeighborsOfSlowClient(t *testing.T) {
	t.Parallel()
	token := func(issuer, subject, client string) *guard.Token {
		return &guard.Token{Issuer: issuer, Subject: subject, ClientID: client}
	}
	answer := dripBody(paddedObservation(10_000))
	for name, ask := range map[string]func(g *gateway, r *http.Request) error{
		"another client":                      func(g *gateway, r *http.Request) error { return g.serveToken(token("i", "bob", "other"), r, answer) },
		"another person with the same client": func(g *gateway, r *http.Request) error { return g.serveToken(token("i", "bob", "app"), r, answer) },
		"the client itself":                   func(g *gateway, r *http.Request) error { return g.serveToken(token("i", "app", "app"), r, answer) },
		"the same names of another issuer":    func(g *gateway, r *http.Request) error { return g.serveToken(token("j", "alice", "app"), r, answer) },
		"the records of a RelatedPerson": func(g *gateway, r *http.Request) error {
			_, err := g.RelatedPatients(r, answer, interaction.Reference{Type: "RelatedPerson", ID: "r"}, token("i", "bob", "app"))
			return err
		},
		"without a token": func(g *gateway, r *http.Request) error {
			m := &capability.Metadata{Base: "/fhir/R4", Memory: g.Memory}
			return m.ServeHTTP(httptest.NewRecorder(), r, dripBody(`{"resourceType":"CapabilityStatement"}`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g, disconnected := newGateway(t), make(chan struct{})
				g.Memory = fairmemory.New(100_000, fhirserver.MaxMemoryWait)
				for range 12 {
					go func() {
						r := httptest.NewRequest(http.MethodGet, "/fhir/R4/Observation/a1", nil)
						_ = g.Serve(stalledClient{httptest.NewRecorder(), disconnected}, r, answer, enforce.Bearer{Rights: access.New(patientA, g.TypeRules), Token: token("i", "alice", "app")})
					}()
				}
				synctest.Wait()
				start := time.Now()
				if err := ask(g, httptest.NewRequest(http.MethodGet, "/fhir/R4/Observation/a1", nil)); err != nil || time.Since(start) != 0 {
					t.Errorf("answered after %v: %v", time.Since(start), err)
				}
				close(disconnected)
			})
		})
	}
}

func (g *gateway) serveToken(token *guard.Token, r *http.Request, next handler) error {
	return g.Serve(httptest.NewRecorder(), r, next, enforce.Bearer{Rights: access.New(patientA, g.TypeRules), Token: token})
}

// If clients without a token do not read the CapabilityStatement, only its text uses memory, from the share of their network.
func TestSlowMetadata(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		memory, disconnected := fairmemory.New(100_000, fhirserver.MaxMemoryWait), make(chan struct{})
		m := &capability.Metadata{Base: "/fhir/R4", Memory: memory, Network: func(r *http.Request) string { return r.RemoteAddr }}
		statement := dripBody(`{"resourceType":"CapabilityStatement","description":"` + strings.Repeat("x", 10_000) + `"}`)
		ask := func(w http.ResponseWriter, network string) error {
			r := httptest.NewRequest(http.MethodGet, "/fhir/R4/metadata", nil)
			r.RemoteAddr = network
			return m.ServeHTTP(w, r, statement)
		}
		for range 12 {
			go ask(stalledClient{httptest.NewRecorder(), disconnected}, "slow")
		}
		synctest.Wait()
		if inUse := memory.InUse(); inUse > 50_000 {
			t.Errorf("a network uses %d bytes", inUse)
		}
		start := time.Now()
		if err := ask(httptest.NewRecorder(), "other"); err != nil || time.Since(start) != 0 {
			t.Errorf("answered after %v: %v", time.Since(start), err)
		}
		close(disconnected)
	})
}

// A batch uses memory for the responses of its entries, but not for everything that was read for them.
func TestMemoryOfBatch(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	g.Memory = fairmemory.New(100_000, fhirserver.MaxMemoryWait)
	entry := `{"request":{"method":"GET","url":"Observation?_id=none"}}`
	body := `{"resourceType":"Bundle","type":"batch","entry":[` + strings.Repeat(entry+",", 19) + entry + `]}`
	r := newRequest(http.MethodPost, "/fhir/R4", "application/fhir+json", body)
	hidden := strings.Replace(paddedObservation(20_000), "Patient/a", "Patient/b", 1)
	w := httptest.NewRecorder()
	if _, err := g.serve(w, patientA, r, dripBody(searchBundle(hidden))); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(w.Body.String(), `"status":"200 OK"`); n != 20 {
		t.Errorf("%d of 20 entries were answered: %s", n, w.Body)
	}
}

// A thousand concurrent requests succeed, each with a response of the maximum size.
func TestThousandAtOnce(t *testing.T) {
	t.Parallel()
	const length, memory = 10_000, 100_000
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t)
		g.Limits.ResponseBytes, g.Memory = length, fairmemory.New(memory, fhirserver.MaxMemoryWait)
		answer := dripBody(paddedObservation(length))
		var served, refused atomic.Int64
		var all, group sync.WaitGroup
		all.Add(1000)
		next := handler(func(w http.ResponseWriter, r *http.Request) error {
			all.Done()
			all.Wait() // wait until all requests are sent
			return answer(w, r)
		})
		for range 1000 {
			group.Go(func() {
				status, err := g.serve(httptest.NewRecorder(), patientA, httptest.NewRequest(http.MethodGet, "/fhir/R4/Observation/a1", nil), next)
				switch status {
				case http.StatusOK:
					served.Add(1)
				case http.StatusServiceUnavailable:
					refused.Add(1)
				default:
					t.Errorf("status %d: %v", status, err)
				}
				if inUse := g.Memory.InUse(); inUse > memory {
					t.Errorf("%d bytes in use", inUse)
				}
			})
		}
		group.Wait()
		if served.Load() < 900 || g.Memory.InUse() != 0 {
			t.Errorf("%d were served and %d rejected, with %d bytes in use at the end", served.Load(), refused.Load(), g.Memory.InUse())
		}
	})
}

// The memory limit also applies to metadata and to the lookup of a RelatedPerson, for which no scopes are known.
func TestMemoryBeforeScopes(t *testing.T) {
	t.Parallel()
	memory := fairmemory.New(1000, fhirserver.MaxMemoryWait)
	metadata := &capability.Metadata{Base: "/fhir/R4", Memory: memory}
	g := newGateway(t)
	g.Memory = memory
	for name, ask := range map[string]func(r *http.Request) error{
		"metadata": func(r *http.Request) error {
			return metadata.ServeHTTP(httptest.NewRecorder(), r, dripBody(paddedObservation(501)))
		},
		"RelatedPerson": func(r *http.Request) error {
			_, err := g.RelatedPatients(r, dripBody(paddedObservation(501)), interaction.Reference{Type: "RelatedPerson", ID: "r"}, nil)
			return err
		},
	} {
		if err := ask(httptest.NewRequest(http.MethodGet, "/fhir/R4/metadata", nil)); !errors.Is(err, message.ErrTooCostly) {
			t.Errorf("%s: %v", name, err)
		}
		if inUse := memory.InUse(); inUse != 0 {
			t.Errorf("%s: %d bytes in use at the end", name, inUse)
		}
	}
}
