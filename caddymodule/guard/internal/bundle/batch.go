package bundle

import (
	"context"
	"errors"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/write"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// asker asks the FHIR server, and holds its answers.
type asker interface {
	Ask(ctx context.Context, c message.Call) (*message.Answer, error)
	Begin()
	Held() int64
	Keep(since int64, a *message.Answer)
}

// judge remembers what was looked up for an entry, and what a transaction will write.
type judge interface {
	Forget()
	Promise(res resource.Resource, certain bool)
	Under(ctx context.Context, c message.Call, i interaction.Interaction, answer func() (*message.Answer, error)) (*message.Answer, error)
}

// entries answers the entries of a bundle as requests of their own.
type entries interface {
	// Answer answers an entry.
	Answer(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Answer, error)
	// Collect is Answer for a write that is not sent yet.
	Collect(ctx context.Context, c message.Call, i interaction.Interaction, to write.Collector) (*message.Answer, error)
	// CheckSearch refuses a search that would be refused, and asks for nothing that it finds.
	CheckSearch(ctx context.Context, c message.Call, i interaction.Interaction) error
	// PassesSingle reports whether an entry about one resource needs no judging.
	PassesSingle(c message.Call, i interaction.Interaction) bool
	// Begins and Decided tell of an entry before and after it was answered.
	Begins(i interaction.Interaction)
	Decided(i interaction.Interaction, err error)
}

// Bundles are batches and transactions.
type Bundles struct {
	Server     asker             // asks the FHIR server
	Judge      judge             // judges what it answers
	At         message.Addresses // names what it holds as clients know it
	Entries    entries           // answers an entry
	MaxEntries int               // of one bundle
	Limit      int64             // of all answers
}

// Bundle answers a batch or a transaction.
func (x *Bundles) Bundle(ctx context.Context, c message.Call) (*message.Answer, error) {
	s, err := parseSubmission(c.Body, x.MaxEntries)
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
func (s *submission) prefer(c message.Call) {
	i, err := c.Interaction()
	if preferences := c.Header.Values("Prefer"); err == nil && !i.Async && len(preferences) > 0 {
		for _, e := range s.entries {
			e.header["Prefer"] = preferences
		}
	}
}

// batch answers each entry as a request of its own, in their order, which is as good as any (R4 http.html#brules). So
// all that holds for requests holds for entries, whatever the FHIR server makes of batches.
func (x *Bundles) batch(ctx context.Context, s *submission) (*message.Answer, error) {
	out := &message.Bundle{Kind: "batch-response", Total: -1}
	var size int64
	for n := range s.entries {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		a, err := x.entryAnswer(ctx, &s.entries[n], size)
		e := entryOf(a, err)
		size += int64(len(e.Resource) + len(e.Response))
		out.Entries = append(out.Entries, e)
	}
	return message.NewAnswer(http.StatusOK, out.Text()), nil
}

// entryAnswer answers one entry, unless the answers before it are as long as an answer may be.
func (x *Bundles) entryAnswer(ctx context.Context, e *submitted, size int64) (*message.Answer, error) {
	if size > x.Limit {
		return nil, message.TooCostly("The answers to the entries before are longer than %d bytes: ask for less at once.", x.Limit)
	}
	c, i, err := e.call()
	if err != nil {
		x.Entries.Decided(i, err)
		return nil, err
	}
	x.begin(i)
	before := x.Server.Held()
	a, err := x.Entries.Answer(ctx, c, i)
	x.Server.Keep(before, a)
	x.Entries.Decided(i, err)
	return unlessModified(c, a, err)
}

// begin begins an entry. What was learned for the one before may have been changed by it.
func (x *Bundles) begin(i interaction.Interaction) {
	x.Server.Begin()
	x.Judge.Forget()
	x.Entries.Begins(i)
}

// unlessModified is an answer without what the client has already: see [answer.write].
func unlessModified(c message.Call, a *message.Answer, err error) (*message.Answer, error) {
	if err == nil && c.Method == http.MethodGet && a.Status == http.StatusOK && message.IsNotModified(c.Header, a.Header.Get("Etag")) {
		return &message.Answer{Status: http.StatusNotModified, Header: http.Header{"Etag": a.Header["Etag"]}}, nil
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
