package enforce

import (
	"context"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

func (x *exchange) create(_ context.Context, _ call, i interaction.Interaction) (*answer, error) {
	return nil, x.refused(i)
}

func (x *exchange) update(_ context.Context, _ call, i interaction.Interaction) (*answer, error) {
	return nil, x.refused(i)
}

func (x *exchange) patch(_ context.Context, _ call, i interaction.Interaction) (*answer, error) {
	return nil, x.refused(i)
}

func (x *exchange) delete(_ context.Context, _ call, i interaction.Interaction) (*answer, error) {
	return nil, x.refused(i)
}

func (x *exchange) bundle(_ context.Context, _ call) (*answer, error) {
	return nil, notFound()
}

func (x *exchange) operation(_ context.Context, _ call, i interaction.Interaction) (*answer, error) {
	return nil, x.refused(i)
}
