package bundle

import (
	"context"
	"net/http"

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
