package authorizetest

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
)

// LogoutReceiver is the back-channel logout endpoint of a client.
type LogoutReceiver struct {
	URI       string            // URL of the endpoint
	Tokens    chan string       // logout tokens received
	Status    atomic.Int32      // HTTP status of responses
	Transport http.RoundTripper // HTTP transport instead of the network; may be nil
}

// Transport is an [http.RoundTripper] that calls a handler.
type Transport struct{ http.Handler }

// RoundTrip implements [http.RoundTripper].
func (h Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result(), nil
}

// NewLogoutReceiver starts an endpoint that responds with status 200.
func NewLogoutReceiver(t *testing.T) *LogoutReceiver {
	p := &LogoutReceiver{Tokens: make(chan string, 10)}
	p.Status.Store(http.StatusOK)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/x-www-form-urlencoded" || r.URL.RawQuery != "" {
			t.Errorf("%s %s %v", r.Method, r.URL, r.Header)
		}
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(int(p.Status.Load()))
		p.Tokens <- r.PostFormValue("logout_token")
	}))
	t.Cleanup(server.Close)
	p.URI = strings.Replace(server.URL, "127.0.0.1", "localhost", 1) + "/backchannel"
	return p
}

// PostLogoutRedirectURI is the post_logout_redirect_uri of app in [NewNotifyingServer].
const PostLogoutRedirectURI = "https://app.example.org/bye"

// NewNotifyingServer returns a server that sends p a logout token when a session with app ends, and its audit events.
func NewNotifyingServer(t *testing.T, p *LogoutReceiver) (*authorize.Server, Trail) {
	tr := make(Trail, 100)
	return New(t, func(c *authorize.Config) {
		c.Audit = tr.Record
		c.Clients[0].BackchannelLogoutURI, c.Clients[0].Transport = p.URI, p.Transport
		c.Clients[0].PostLogoutRedirectURIs = []string{PostLogoutRedirectURI}
		c.Clients[2].BackchannelLogoutURI = p.URI + "/never" // no test signs in to this client
	}), tr
}

// Trail collects audit events.
type Trail chan audit.Event

// Record adds an event. It discards the event if the channel is full.
func (tr Trail) Record(_ context.Context, e audit.Event) {
	select {
	case tr <- e:
	default:
	}
}

// WaitForNotification waits for the audit event of a logout notification to a client.
func (tr Trail) WaitForNotification(clientID string) audit.Event {
	for e := range tr {
		if e.Kind == audit.KindSignOut && e.ClientID == clientID {
			return e
		}
	}
	return audit.Event{}
}

// AuditTrail collects the audit events of a server, one line each.
type AuditTrail []string

// Record adds an event.
func (a *AuditTrail) Record(_ context.Context, e audit.Event) {
	*a = append(*a, strings.Join(strings.Fields(fmt.Sprint(e.Kind, " ", e.Outcome(), " ", e.GrantType, " ", e.Provider, " user=", e.User, " client=", e.ClientID, " scope=", e.Scope)), " "))
}

// Drain returns and clears the events.
func (a *AuditTrail) Drain() string {
	defer func() { *a = nil }()
	return strings.Join(*a, "\n")
}
