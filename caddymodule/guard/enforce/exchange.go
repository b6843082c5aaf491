package enforce

import (
	"context"
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// exchange is a client's request on its way. It sees what is below it: how the token is judged, and how the FHIR server
// is asked.
type exchange struct {
	*judging
	bearer  Bearer
	collect func(w *write, c call) (*answer, error) // takes what writes come to in a transaction; nil: they are sent
}

// The interactions, each kind in files of its own. They are joined by the exchange: a search follows chains by other
// searches, and a batch answers each entry as a request.
type (
	searches   struct{ *exchange } // newsearch.go
	histories  struct{ *exchange } // history.go
	writes     struct{ *exchange } // write.go
	bundles    struct{ *exchange } // batch.go, transaction.go
	operations struct{ *exchange } // operation.go
	exports    struct{ *exchange } // export.go, job.go
)

func (x *exchange) searches() searches     { return searches{x} }
func (x *exchange) histories() histories   { return histories{x} }
func (x *exchange) writes() writes         { return writes{x} }
func (x *exchange) bundles() bundles       { return bundles{x} }
func (x *exchange) operations() operations { return operations{x} }
func (x *exchange) exports() exports       { return exports{x} }

// Serve answers a request as far as the bearer's rights go. Any error is a *guard.Error or the next handler's.
func (e *Enforcer) Serve(w http.ResponseWriter, r *http.Request, next NextHandler, b Bearer) error {
	x := newExchange(e, r, next, b)
	defer x.share.Release()
	i, err := x.serve(w)
	if e.Decided != nil {
		e.Decided(r, b, x.decision(i, err))
	}
	return err
}

// newExchange makes an exchange and what is below it in one piece, since there is one for each request.
func newExchange(e *Enforcer, r *http.Request, next NextHandler, b Bearer) *exchange {
	whole := &struct {
		exchange
		judging
		backend
	}{}
	whole.backend = newBackend(e, next, r)
	whole.judging = judging{backend: &whole.backend, rights: b.Rights, token: b.Token}
	whole.exchange = exchange{judging: &whole.judging, bearer: b}
	return &whole.exchange
}

// serve answers the client's request, and tells which interaction it is.
func (x *exchange) serve(w http.ResponseWriter) (i interaction.Interaction, err error) {
	c, err := x.clientCall()
	if err != nil {
		return i, err
	}
	if page, ok := strings.CutPrefix(c.path, pagePath); ok {
		if err := checkFormat(x.r.Header, nil); err != nil {
			return i, err
		}
		return x.servePage(w, page)
	}
	if sealed, ok := strings.CutPrefix(c.path, jobPath); ok {
		return x.exports().serveJob(w, sealed)
	}
	if sealed, ok := strings.CutPrefix(c.path, filePath); ok {
		return x.exports().serveFile(w, sealed)
	}
	if i, err = c.interaction(); err != nil {
		return i, err
	}
	x.tell(i)
	if x.passes(i) && x.leavesPassing(c, i) {
		return i, x.pass(w, c, i)
	}
	if x.isHopeless(i) {
		return i, x.refused(i)
	}
	if c, i, err = x.withBody(c, i); err != nil {
		return i, err
	}
	if err := x.checkAnswerFormat(i); err != nil {
		return i, err
	}
	a, err := x.answer(x.r.Context(), c, i)
	if err == nil && x.wantsContent(i, a) {
		a, err = content(a)
	}
	return i, x.finish(w, a, err)
}

// withBody is a call with the client's body: the form of a search is among its parameters, and the content of a Binary is
// one.
func (x *exchange) withBody(c call, i interaction.Interaction) (_ call, _ interaction.Interaction, err error) {
	if c.body, err = x.readBody(c, i); c.body == nil || err != nil {
		return c, i, err
	}
	if x.isContent(i) {
		c, err = x.binary(c, i)
		return c, i, err
	}
	i, err = c.interaction()
	return c, i, err
}

// isHopeless reports whether no scope allows the interaction whatever its body says, which then is not read.
func (x *judging) isHopeless(i interaction.Interaction) bool {
	if i.Type == "" || i.Type == smart.AnyType || x.Policies.Rules != nil {
		return false
	}
	for p := smart.Create; p <= smart.Search; p <<= 1 {
		if i.Permission()&p != 0 && !x.rights.Allow(i.Type, p) {
			return true
		}
	}
	return false
}

// finish writes an answer, or returns the error that took its place.
func (x *exchange) finish(w http.ResponseWriter, a *answer, err error) error {
	if err != nil {
		return err
	}
	x.share.ShrinkTo(int64(len(a.body)))
	err = a.write(w, x.r)
	if a.buffer != nil {
		giveBack(a.buffer)
	}
	return err
}

// answer answers a call: the client's, or an entry of its batch.
func (x *exchange) answer(ctx context.Context, c call, i interaction.Interaction) (*answer, error) {
	return x.underPolicies(ctx, c, i, func() (*answer, error) { return x.answerJudged(ctx, c, i) })
}

// answerJudged answers a call as far as the scopes go, and what the site's rules have made of them.
func (x *exchange) answerJudged(ctx context.Context, c call, i interaction.Interaction) (*answer, error) {
	switch i.Kind {
	case interaction.Read, interaction.VRead:
		return x.read(ctx, c, i)
	case interaction.InstanceHistory:
		return x.histories().instanceHistory(ctx, c, i)
	case interaction.TypeHistory, interaction.SystemHistory:
		return x.histories().history(ctx, c, i)
	case interaction.TypeSearch, interaction.SystemSearch, interaction.CompartmentSearch:
		return x.searches().search(ctx, c, i)
	case interaction.Create, interaction.ConditionalCreate:
		return x.writes().create(ctx, c, i)
	case interaction.Update, interaction.ConditionalUpdate:
		return x.writes().update(ctx, c, i)
	case interaction.Patch, interaction.ConditionalPatch:
		return x.writes().patch(ctx, c, i)
	case interaction.Delete, interaction.ConditionalDelete:
		return x.writes().delete(ctx, c, i)
	case interaction.Bundle:
		return x.bundles().bundle(ctx, c)
	case interaction.Operation:
		return x.operations().operation(ctx, c, i)
	case interaction.Capabilities:
		return x.statement().answer(x.backend, get(c.path, c.query), x.r.WithContext(ctx))
	}
	return nil, notFound()
}

// statement is the metadata for who asks with a token, or in a batch.
func (x *exchange) statement() *Metadata {
	if x.Metadata == nil {
		return &Metadata{Changes: CapabilityChanges{BaseURL: x.BaseURL}}
	}
	return x.Metadata
}
