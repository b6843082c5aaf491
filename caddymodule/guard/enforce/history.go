package enforce

import (
	"context"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

func (x *exchange) history(_ context.Context, _ call, i interaction.Interaction) (*answer, error) {
	return nil, x.refused(i)
}

func (x *exchange) instanceHistory(_ context.Context, _ call, i interaction.Interaction) (*answer, error) {
	return nil, x.refused(i)
}
