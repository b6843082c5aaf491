package read

import (
	"context"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirserver"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/judge"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// Reads are the reads that one request needs, and histories.
type Reads struct {
	Server *fhirserver.Server // asks the FHIR server
	Judge  *judge.Judge       // judges what it answers
	At     message.Addresses  // names what it holds as clients know it
	Pages  paging.Pages       // seals links to pages
}

// Read answers a read or vread. The server is asked whether or not the resource is covered, and what is not there gets
// the same answer as what is not covered, so that nobody learns which it is.
func (x *Reads) Read(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Answer, error) {
	grants := x.Judge.Rights().For(i.Type, smart.Read)
	if len(grants) == 0 {
		return nil, message.Refused(x.Judge.Rights(), i)
	}
	of := interaction.Reference{Type: i.Type, ID: i.ID}
	judge := x.Judge.Readable
	if i.Kind == interaction.VRead {
		judge = x.Judge.Resource
		if err := x.Judge.CheckCurrent(ctx, of); err != nil {
			return nil, err
		}
	}
	held, err := x.Server.Hold(ctx, message.Get(c.Path, ""))
	if err != nil {
		held.Release()
		return nil, err
	}
	a := &held.Answer
	if _, err := judge(ctx, of, grants, a); err != nil {
		held.Release()
		return nil, err
	}
	a.Buffer = held.Kept()
	return a, nil
}

// Admit judges the read of a Binary, by all but its data unless policies look at that, and returns what it is judged
// by.
func (x *Reads) Admit(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Answer, resource.Resource, error) {
	grants := x.Judge.Rights().For(i.Type, smart.Read)
	if len(grants) == 0 {
		return nil, resource.Resource{}, message.Refused(x.Judge.Rights(), i)
	}
	a, err := x.Server.Ask(ctx, x.Judge.BinaryCall(c.Path))
	if err != nil {
		return nil, resource.Resource{}, err
	}
	res, err := x.Judge.Readable(ctx, interaction.Reference{Type: i.Type, ID: i.ID}, grants, a)
	return a, res, err
}
