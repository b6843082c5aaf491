package authorize

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// slowTransport answers, and takes a minute for it where the host is slow.
type slowTransport struct{}

func (slowTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host == "slow.example" {
		time.Sleep(time.Minute)
	}
	return httptest.NewRecorder().Result(), nil
}

// A client that is slow to hear of sign-outs does not keep others from it.
func TestSlowClientDelaysItselfAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNotices()
		n.client = &http.Client{Transport: slowTransport{}}
		var group sync.WaitGroup
		for range 3 * noticesAtOnce {
			group.Go(func() { _ = n.post(t.Context(), &Client{BackchannelLogoutURI: "https://slow.example/logout"}, "x") })
		}
		synctest.Wait()
		start := time.Now()
		if err := n.post(t.Context(), &Client{BackchannelLogoutURI: "https://quick.example/logout"}, "x"); err != nil || time.Since(start) != 0 {
			t.Errorf("told after %v, %v", time.Since(start), err)
		}
		group.Wait()
	})
}

// What a form may bring is more than is worth comparing.
func TestCanonicalNameIsBounded(t *testing.T) {
	long := strings.Repeat("ﷺ", 20_000) // each becomes 18 characters
	if got := canonicalName(long); len(got) > 20*maxName {
		t.Errorf("%d bytes", len(got))
	}
}
