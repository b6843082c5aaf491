package access_test

import (
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// TestEffects checks that of each type of R4 it is decided what its being stored may do.
func TestEffects(t *testing.T) {
	t.Parallel()
	for _, name := range interaction.Types() {
		if access.EffectOf(name) == "" {
			t.Errorf("%s has no row", name)
		}
	}
	if got := access.EffectOf("SubscriptionTopic"); got != "" {
		t.Errorf("a type of R5's is %q", got)
	}
	if a, b := access.EffectOf("Subscription"), access.EffectOf("SearchParameter"); a != access.Sends || b != access.Steers {
		t.Errorf("Subscription %q, SearchParameter %q", a, b)
	}
}
