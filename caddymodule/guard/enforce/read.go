package enforce

import (
	"context"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// asking asks the FHIR server.
type readAsking interface {
	Ask(ctx context.Context, c call) (*answer, error)
	Hold(ctx context.Context, c call) (*heldResponse, error)
	Asked() int
}

// judging says what the token may see.
type readJudging interface {
	Rights() *access.Rights
	Covered(ctx context.Context, res resource.Resource, grants []access.Grant) (bool, error)
	Resource(ctx context.Context, of interaction.Reference, grants []access.Grant, a *answer) (resource.Resource, error)
	EvenOut(ctx context.Context, resourceType string, grants []access.Grant, asked int, refusal error) error
}

// reads are the reads that one request needs, and histories.
type reads struct {
	server readAsking
	judge  readJudging
	at     addresses
	pages  pages
}

// Read answers a read or vread. The server is asked whether or not the resource is covered, and what is not there gets
// the same answer as what is not covered, so that nobody learns which it is.
func (x *reads) Read(ctx context.Context, c call, i interaction.Interaction) (*answer, error) {
	grants := x.judge.Rights().For(i.Type, smart.Read)
	if len(grants) == 0 {
		return nil, refused(x.judge.Rights(), i)
	}
	held, err := x.server.Hold(ctx, get(c.path, ""))
	if err != nil {
		held.release()
		return nil, err
	}
	a := held.answer()
	if _, err := x.judge.Resource(ctx, interaction.Reference{Type: i.Type, ID: i.ID}, grants, a); err != nil {
		held.release()
		return nil, err
	}
	a.buffer = held.kept()
	return x.at.localize(a), nil
}
