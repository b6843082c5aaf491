package enforce

import (
	"context"
	"errors"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// bundleAsking asks the FHIR server, and holds its answers.
type bundleAsking interface {
	Ask(ctx context.Context, c call) (*answer, error)
	Begin()
	Held() int64
	Keep(since int64, a *answer)
}

// bundleJudging remembers what was looked up for an entry, and what a transaction will write.
type bundleJudging interface {
	Forget()
	Promise(res resource.Resource, certain bool)
	Under(ctx context.Context, c call, i interaction.Interaction, answer func() (*answer, error)) (*answer, error)
}

// entries answers the entries of a bundle as requests of their own.
type entries interface {
	// Answer answers an entry.
	Answer(ctx context.Context, c call, i interaction.Interaction) (*answer, error)
	// Collect is Answer for a write that is not sent yet.
	Collect(ctx context.Context, c call, i interaction.Interaction, to collector) (*answer, error)
	// CheckSearch refuses a search that would be refused, and asks for nothing that it finds.
	CheckSearch(ctx context.Context, c call, i interaction.Interaction) error
	// PassesSingle reports whether an entry about one resource needs no judging.
	PassesSingle(c call, i interaction.Interaction) bool
	// Begins and Decided tell of an entry before and after it was answered.
	Begins(i interaction.Interaction)
	Decided(i interaction.Interaction, err error)
}

// bundles are batches and transactions.
type bundles struct {
	server  bundleAsking
	judge   bundleJudging
	at      addresses
	entries entries
	limits  Limits
}

// bundle answers a batch or a transaction.
func (x *bundles) bundle(ctx context.Context, c call) (*answer, error) {
	s, err := parseSubmission(c.body, x.limits.Entries)
	if err != nil {
		return nil, err
	}
	s.prefer(c)
	if x.passesWhole(s) {
		return x.sendWhole(ctx, s)
	}
	if s.kind == "transaction" {
		return x.transaction(ctx, s)
	}
	return x.batch(ctx, s)
}

// prefer has each entry prefer what the client prefers of the whole (R4 http.html#ops), but that it is done later.
func (s *submission) prefer(c call) {
	i, err := c.interaction()
	if preferences := c.header.Values("Prefer"); err == nil && !i.Async && len(preferences) > 0 {
		for _, e := range s.entries {
			e.header["Prefer"] = preferences
		}
	}
}

// batch answers each entry as a request of its own, in their order, which is as good as any (R4 http.html#brules). So
// all that holds for requests holds for entries, whatever the FHIR server makes of batches.
func (x *bundles) batch(ctx context.Context, s *submission) (*answer, error) {
	out := &bundle{kind: "batch-response", total: -1}
	var size int64
	for n := range s.entries {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		a, err := x.entryAnswer(ctx, &s.entries[n], size)
		e := entryOf(a, err)
		size += int64(len(e.resource) + len(e.response))
		out.entries = append(out.entries, e)
	}
	return newAnswer(http.StatusOK, out.text()), nil
}

// entryAnswer answers one entry, unless the answers before it are as long as an answer may be.
func (x *bundles) entryAnswer(ctx context.Context, e *submitted, size int64) (*answer, error) {
	if size > x.limits.Answer {
		return nil, tooCostly("The answers to the entries before are longer than %d bytes: ask for less at once.", x.limits.Answer)
	}
	c, i, err := e.call()
	if err != nil {
		x.entries.Decided(i, err)
		return nil, err
	}
	x.begin(i)
	before := x.server.Held()
	a, err := x.entries.Answer(ctx, c, i)
	x.server.Keep(before, a)
	x.entries.Decided(i, err)
	return unlessModified(c, a, err)
}

// begin begins an entry. What was learned for the one before may have been changed by it.
func (x *bundles) begin(i interaction.Interaction) {
	x.server.Begin()
	x.judge.Forget()
	x.entries.Begins(i)
}

// unlessModified is an answer without what the client has already: see [answer.write].
func unlessModified(c call, a *answer, err error) (*answer, error) {
	if err == nil && c.method == http.MethodGet && a.status == http.StatusOK && isNotModified(c.header, a.header.Get("Etag")) {
		return &answer{status: http.StatusNotModified, header: http.Header{"Etag": a.header["Etag"]}}, nil
	}
	return a, err
}

// refusalOf is an error as what the client is told of it.
func refusalOf(err error) *guard.Error {
	if refusal, ok := errors.AsType[*guard.Error](err); ok {
		return refusal
	}
	return &guard.Error{Status: http.StatusBadGateway, Description: "The FHIR server could not answer.", Err: err}
}
