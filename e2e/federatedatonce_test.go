package e2e

import (
	"fmt"
	"testing"
)

// If several people sign in at one provider concurrently, each person is signed in with the correct identity.
func TestFederatedSignInsAtOnce(t *testing.T) {
	address := mustFreeAddress(t)
	provider := startOIDCProvider(t, "oidc-provider-at-once", address)
	g := federatedGateway(t, "gateway-at-once", address, []string{provider.idp("rs256")})
	for i := range 12 {
		name, typed := "Ada Abbott", adaTypes
		if i%2 == 1 {
			name, typed = "Bob Brown", bobTypes
		}
		t.Run(fmt.Sprintf("%s %d", name, i/2), func(t *testing.T) {
			t.Parallel()
			if got := g.newPerson(t).signInBy(t, "node-rs256", typed); got.userInfo.Name != name {
				t.Errorf("signed in as %+v, want %s", got.userInfo, name)
			}
		})
	}
}
