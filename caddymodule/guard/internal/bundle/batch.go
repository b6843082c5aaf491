package bundle

import (
	"context"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
)

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
