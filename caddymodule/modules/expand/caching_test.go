package expand

import (
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/terminology/remote"
)

// A cached answer may take as long as whoever is asked for it.
func TestLongestTimeout(t *testing.T) {
	t.Parallel()
	c := Caching{Timeout: caddy.Duration(time.Second), Upstream: new(Upstream), Routes: []UpstreamRoute{{Upstream: Upstream{Timeout: caddy.Duration(time.Minute)}}}}
	if got := c.cacheOptions().Timeout; got != time.Minute {
		t.Errorf("an answer may take %v, and a server a minute", got)
	}
	if c.Routes = nil; c.longest() != remote.DefaultTimeout {
		t.Errorf("an answer may take %v, and the upstream its default", c.longest())
	}
}
