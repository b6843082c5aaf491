package bundle

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/write"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// transaction is a client's on its way. Each entry is judged as the request that it is, before anything is sent. What
// writes come to is collected meanwhile, and goes to the FHIR server as one transaction. Reads and searches are asked
// one by one when that is done, as R4 orders them.
type transaction struct {
	in    *Bundles
	parts []*part
	names map[string]*part // by fullUrl
	preds []*part          // whose criteria have been searched for
}

// part is an entry of a transaction.
type part struct {
	submitted
	n       int
	c       message.Call
	i       interaction.Interaction
	as      interaction.Reference // what is written, as others refer to it while they are judged
	isNew   bool                  // the id in as stands for one that the FHIR server will give
	result  write.Result          // what the client is told of a write
	sent    *message.Call         // what a write comes to; nil: there is nothing to do
	instead *message.Answer
}

// isWrite reports whether the entry changes something.
func (p *part) isWrite() bool {
	return p.i.Permission()&(smart.Create|smart.Update|smart.Delete) != 0
}

// isConditional reports whether criteria say what the entry writes.
func (p *part) isConditional() bool { return p.isWrite() && p.i.Permission()&smart.Search != 0 }

// isRead reports whether the entry reads or searches.
func (p *part) isRead() bool {
	switch p.i.Kind {
	case interaction.Read, interaction.VRead, interaction.TypeSearch, interaction.SystemSearch, interaction.CompartmentSearch:
		return true
	}
	return false
}

// refused is the error of an entry as that of the transaction. What is not there is not told from what may not be seen,
// so both are refused in the same way as what no scope allows.
func (p *part) refused(err error) error {
	refusal, ok := errors.AsType[*guard.Error](err)
	if !ok {
		return err
	}
	whole := *refusal
	whole.Description = fmt.Sprintf("Nothing was done, because of Bundle.entry[%d]: %s", p.n, refusal.Description)
	if whole.Status == http.StatusNotFound {
		whole.Status = http.StatusForbidden
	}
	return &whole
}
