package authorize_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
)

// What a request is answered while the store is away.
type duringOutage int

const (
	_                      duringOutage = iota // not tried
	unavailable                                // 503, when to try again, and an entry in the audit trail
	temporarilyUnavailable                     // the same to the client, through the browser
	goesOn                                     // as ever
	refusedByStore                             // 400, as back-channel logout has it
)

// While the store is away, what needs it says so, and what does not goes on. Once it is back,
// the same request succeeds.
func TestStoreIsAway(t *testing.T) {
	t.Parallel()
	for _, tt := range requests {
		if tt.during == 0 {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, shared := authorizetest.Start(t), storetest.NewShared()
			var events []audit.Event
			server := servertest.New(t, func(c *authorize.Config) {
				everything(c)
				servertest.Refreshing(c)
				registering(p, new(authorizetest.Storage))(c)
				c.Store = shared.Gateway()
				c.Durable = c.Store
				c.Audit = func(_ context.Context, e audit.Event) { events = append(events, e) }
			})
			b := servertest.NewBrowser(t, server)
			request := tt.prepare(b, p)
			events = nil
			shared.SetDown(true)
			checkOutage(t, b.Send(request()), tt.during)
			events = slices.DeleteFunc(events, func(e audit.Event) bool { return !errors.Is(e.Err, store.ErrUnavailable) })
			if (len(events) == 1) != (tt.during != goesOn) {
				t.Errorf("%d events: %+v", len(events), events)
			}
			shared.SetDown(false)
			if r := b.Send(request()); r.StatusCode >= http.StatusBadRequest || leadsTo("error=")(r) {
				t.Errorf("afterwards: %d to %q: %s", r.StatusCode, r.Header.Get("Location"), servertest.Body(t, r))
			}
		})
	}
}

func checkOutage(t *testing.T, r *http.Response, want duringOutage) {
	t.Helper()
	body := servertest.Body(t, r)
	right := false
	switch want {
	case unavailable:
		right = r.StatusCode == http.StatusServiceUnavailable && r.Header.Get("Retry-After") != "" && namesNoCause(r, body)
	case temporarilyUnavailable:
		right = r.StatusCode == http.StatusFound && leadsTo("error=temporarily_unavailable")(r)
	case goesOn:
		right = r.StatusCode < http.StatusBadRequest && !leadsTo("error=")(r)
	case refusedByStore:
		right = r.StatusCode == http.StatusBadRequest
	}
	if !right {
		t.Errorf("%d, Retry-After %q, to %q: %s", r.StatusCode, r.Header.Get("Retry-After"), r.Header.Get("Location"), strings.Join(strings.Fields(body)[max(0, len(strings.Fields(body))-40):], " "))
	}
}

// namesNoCause reports whether an answer to a client tells no more than that this server
// failed.
func namesNoCause(r *http.Response, body string) bool {
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		return !strings.Contains(body, "store")
	}
	var answer map[string]string
	return json.Unmarshal([]byte(body), &answer) == nil && len(answer) == 1 && answer["error"] == "server_error"
}
