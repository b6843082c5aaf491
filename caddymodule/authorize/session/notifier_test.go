package session

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
)

// slowTransport responds to requests, after a minute if the host is slow.
type slowTransport struct{}

func (slowTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host == "slow.example" {
		time.Sleep(time.Minute)
	}
	return httptest.NewRecorder().Result(), nil
}

// A slow client does not delay the notification of other clients.
func TestSlowClientDelaysNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := NewNotifier("", nil, nil, nil)
		n.client = &http.Client{Transport: slowTransport{}}
		var group sync.WaitGroup
		for range 3 * maxConcurrentDeliveries {
			group.Go(func() {
				_ = n.post(t.Context(), &client.Client{BackchannelLogoutURI: "https://slow.example/logout"}, "x")
			})
		}
		synctest.Wait()
		start := time.Now()
		if err := n.post(t.Context(), &client.Client{BackchannelLogoutURI: "https://quick.example/logout"}, "x"); err != nil || time.Since(start) != 0 {
			t.Errorf("notified after %v, %v", time.Since(start), err)
		}
		group.Wait()
	})
}
