package bundle

import (
	"context"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// Bundle answers a batch or a transaction.
func (x *Bundles) Bundle(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Answer, error) {
	s, err := parseSubmission(c.Body, x.MaxEntries)
	if err != nil {
		return nil, err
	}
	s.prefer(c, i)
	if x.passesWhole(s) {
		return x.sendWhole(ctx, s)
	}
	if s.kind == "transaction" {
		return x.transaction(ctx, s)
	}
	return x.batch(ctx, s)
}

// prefer has each entry prefer what the client prefers of the whole (R4 http.html#ops), but that it is done later.
func (s *submission) prefer(c message.Call, i interaction.Interaction) {
	if preferences := c.Header.Values("Prefer"); !i.Async && len(preferences) > 0 {
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
	return out.Answer(), nil
}

// passesWhole reports whether a batch or transaction needs no judging: each entry is a request that would pass, and
// whose answer is no Bundle, the links in which would have to be sealed.
func (x *Bundles) passesWhole(s *submission) bool {
	for n := range s.entries {
		if c, i, err := s.entries[n].call(); err != nil || !x.Entries.PassesSingle(c, i) {
			return false
		}
	}
	return s.areDistinct() && len(s.entries) > 0
}

// areDistinct reports whether no fullUrl is there twice.
func (s *submission) areDistinct() bool {
	seen := map[string]bool{}
	for _, e := range s.entries {
		if e.fullURL != "" && seen[e.fullURL] {
			return false
		}
		seen[e.fullURL] = true
	}
	return true
}

// sendWhole has the FHIR server answer a Bundle that needs no judging. It is written anew all the same, so that the
// server gets what was read here.
func (x *Bundles) sendWhole(ctx context.Context, s *submission) (*message.Answer, error) {
	b := &message.Bundle{Kind: s.kind, Total: -1}
	for n := range s.entries {
		e := &s.entries[n]
		c, i, err := e.call()
		if err != nil {
			return nil, err
		}
		x.Entries.Decided(i, nil)
		b.Entries = append(b.Entries, message.Entry{FullURL: e.fullURL, Resource: e.sent(c), Request: requestOf(c)})
	}
	header := http.Header{"Content-Type": {message.TypeJSON}}
	if prefer := s.entries[0].header["Prefer"]; prefer != nil {
		header["Prefer"] = prefer
	}
	return x.Server.Ask(ctx, message.Call{Method: http.MethodPost, Header: header, Body: b.Text()})
}

// sent is the resource of an entry as it goes on: none where there is no use for one.
func (e *submitted) sent(c message.Call) []byte {
	if c.Body == nil {
		return nil
	}
	return e.resource
}
