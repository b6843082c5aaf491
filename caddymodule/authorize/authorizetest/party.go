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

// Party is a client's back-channel endpoint.
type Party struct {
	URI       string            // its address
	Tokens    chan string       // Tokens gets the logout tokens that arrive
	Status    atomic.Int32      // what it answers with
	Transport http.RoundTripper // Transport, if not nil, is in place of the network
}

// Transport is a [http.RoundTripper] that a handler answers, without a network.
type Transport struct{ http.Handler }

// RoundTrip implements [http.RoundTripper].
func (h Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result(), nil
}

// NewParty starts an endpoint that answers 200.
func NewParty(t *testing.T) *Party {
	p := &Party{Tokens: make(chan string, 10)}
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

// AfterLogout is the post_logout_redirect_uri of app at [NewNotifying].
const AfterLogout = "https://app.example.org/bye"

// NewNotifying makes a server that tells a party when people sign out of app, and the trail of its
// events.
func NewNotifying(t *testing.T, p *Party) (*authorize.Server, Trail) {
	tr := make(Trail, 100)
	return New(t, func(c *authorize.Config) {
		c.Audit = tr.Record
		c.Clients[0].BackchannelLogoutURI, c.Clients[0].Transport = p.URI, p.Transport
		c.Clients[0].PostLogoutRedirectURIs = []string{AfterLogout}
		c.Clients[2].BackchannelLogoutURI = p.URI + "/never" // takes no part
	}), tr
}

// Trail collects events.
type Trail chan audit.Event

// Record adds an event, if there is room.
func (tr Trail) Record(_ context.Context, e audit.Event) {
	select {
	case tr <- e:
	default:
	}
}

// ToldOf waits for what came of telling a client.
func (tr Trail) ToldOf(clientID string) audit.Event {
	for e := range tr {
		if e.Kind == audit.SignOut && e.ClientID == clientID {
			return e
		}
	}
	return audit.Event{}
}

// AuditTrail gathers the events of a server, each in one line.
type AuditTrail []string

// Record adds an event.
func (a *AuditTrail) Record(_ context.Context, e audit.Event) {
	*a = append(*a, strings.Join(strings.Fields(fmt.Sprint(e.Kind, " ", e.Outcome(), " ", e.Grant, " ", e.Provider, " user=", e.User, " client=", e.ClientID, " scope=", e.Scope)), " "))
}

// Take returns the events, and forgets them.
func (a *AuditTrail) Take() string {
	defer func() { *a = nil }()
	return strings.Join(*a, "\n")
}
