package authorize_test

import (
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
)

// What each flow asks of a store that gateways share, as docs/evidence/replicas.md says it.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/evidence/replicas.md")
	if err != nil {
		t.Fatal(err)
	}
	check := func(t *testing.T, name string, trips int) {
		if row := fmt.Sprintf("| %s | %d |", name, trips); !strings.Contains(string(text), row) {
			t.Errorf("docs/evidence/replicas.md does not have the row\n%s", row)
		}
	}
	for _, tt := range requests {
		if tt.row == "" {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := newGateways(t, 1, everything)
				b := servertest.NewBrowser(t, g)
				request := tt.prepare(b, nil)
				check(t, tt.row, g.roundTrips(func() { b.Send(request()) }))
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		g := newGateways(t, 1, everything)
		b := servertest.NewBrowser(t, g)
		asked := accessToken(b, b.Tokens(url.Values{"scope": {"openid online_access"}}).AccessToken)
		check(t, "what the guard asks of an access token", g.roundTrips(guarding(t, g.servers[0], asked)))
	})
}
