package expand

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fairqueue"
	"github.com/caddy-fhir/caddy-fhir/terminology/dispatch"
)

// Cached responses from servers are separated by all claims of a token that identify the holder. A response for one patient
// context is not used for another.
func TestPrincipal(t *testing.T) {
	t.Parallel()
	var host expandHost
	names := []string{"id", "client_id", "scope", "patient", "fhir_user", "issuer"}
	requestOf := func(other string) context.Context {
		replacer := caddy.NewReplacer()
		for _, name := range names {
			replacer.Set("http.auth.user."+name, "a")
		}
		if other != "" {
			replacer.Set("http.auth.user."+other, "b")
		}
		return context.WithValue(t.Context(), caddy.ReplacerCtxKey, replacer)
	}
	for _, name := range names {
		if host.Principal(requestOf(name)) == host.Principal(requestOf("")) {
			t.Errorf("%s makes no difference", name)
		}
	}
	if host.Client(requestOf("patient")) != host.Client(requestOf("")) {
		t.Error("answers that are the same for all are kept for each patient")
	}
}

// TestHolders checks which network and client a costly request's slot is assigned to.
func TestHolders(t *testing.T) {
	replacer := caddy.NewReplacer()
	replacer.Set("http.auth.user.client_id", "app")
	vars := map[string]any{caddyhttp.ClientIPVarKey: "2001:db8:1:2:3:4::5"}
	ctx := context.WithValue(t.Context(), caddyhttp.VarsCtxKey, vars)
	identified := context.WithValue(ctx, caddy.ReplacerCtxKey, replacer)
	later := expandHost{}.Detach(identified)
	replacer.Set("http.auth.user.client_id", "other")
	for _, test := range []struct {
		name string
		ctx  context.Context
		want []string
	}{
		{"without a guard", ctx, []string{"network 2001:db8:1:2::/64"}},
		{"with a client", identified, []string{"network 2001:db8:1:2::/64", "client other"}},
		{"of a request that may be over", later, []string{"network 2001:db8:1:2::/64", "client app"}},
		{"without Caddy", t.Context(), []string{"network "}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := slotHolders(test.ctx); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// A network that floods the queue gets half of the slots. Another network gets a slot immediately. Requests that wait too long
// are rejected.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := fairqueue.New(4)
		from := func(address string) context.Context {
			return context.WithValue(t.Context(), detachedKey{}, &detachedRequest{address: address})
		}
		for i, test := range []struct {
			address string
			want    error
		}{{"192.0.2.1", nil}, {"192.0.2.1", nil}, {"192.0.2.1", context.DeadlineExceeded}, {"198.51.100.1", nil}} {
			began := time.Now()
			leave, err := acquireSlotIn(from(test.address), queue)
			if waited := time.Since(began); !errors.Is(err, test.want) || err == nil && waited > 0 || err != nil && waited != maxSlotWait {
				t.Errorf("request %d: got %v after %v", i, err, waited)
			}
			if err == nil {
				defer leave()
			}
		}
	})
}

// If all slots are in use, costly requests are rejected with Retry-After and not forwarded to the next handler. Other requests
// are handled as usual.
func TestBusy(t *testing.T) {
	h := provisioned(t)
	if h.handler.AcquireSlot == nil {
		t.Error("costly requests need no turn")
	}
	h.handler.AcquireSlot = func(context.Context) (func(), error) { return nil, fairqueue.ErrFull }
	next := caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error {
		t.Error("the next handler was called")
		return nil
	})
	const gender = `{"name":"url","valueUri":"http://hl7.org/fhir/ValueSet/administrative-gender"}`
	large := `,{"name":"tx-resource","resource":{"resourceType":"ValueSet","description":"` + strings.Repeat("x", 1<<20) + `"}}`
	for more, want := range map[string]int{"": http.StatusOK, large: http.StatusServiceUnavailable} {
		r := httptest.NewRequest(http.MethodPost, "/fhir/R4/ValueSet/$expand", strings.NewReader(`{"resourceType":"Parameters","parameter":[`+gender+more+`]}`))
		r.Header.Set("Content-Type", "application/fhir+json")
		w := httptest.NewRecorder()
		err := h.ServeHTTP(w, r, next)
		if err != nil || w.Code != want {
			t.Errorf("got %d, %v", w.Code, err)
		}
		if got := w.Header().Get("Retry-After"); (got == "5") != (want != http.StatusOK) {
			t.Errorf("Retry-After is %q", got)
		}
	}
}

// provisioned returns a provisioned handler with default settings.
func provisioned(t *testing.T) *Expand {
	t.Helper()
	ctx, err := caddy.ProvisionContext(&caddy.Config{})
	if err != nil {
		t.Fatal(err)
	}
	h := &Expand{}
	if err := h.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Cleanup() })
	return h
}

// Counting a request does not allocate.
func TestCountingAllocatesNothing(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { expandMetrics{}.Count(t.Context(), dispatch.OutcomeLocal) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkExpansionCounted(b *testing.B) {
	for b.Loop() {
		expandMetrics{}.Count(b.Context(), dispatch.OutcomeLocal)
	}
}
