package enforce

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// send has the FHIR server do what the writes come to, and returns its answers in their order. Nothing of the client's
// Bundle goes on but what was judged.
func (t *transaction) send(ctx context.Context) ([]entry, error) {
	b := &bundle{kind: "transaction", total: -1}
	var first *part
	for _, p := range t.parts {
		if p.sent == nil {
			continue
		}
		if first == nil {
			first = p
		}
		b.entries = append(b.entries, t.entry(p))
	}
	if first == nil {
		return nil, nil
	}
	t.in.begin(interaction.Interaction{Kind: interaction.Bundle})
	header := http.Header{"Content-Type": {typeJSON}}
	if prefer := first.sent.header["Prefer"]; prefer != nil {
		header["Prefer"] = prefer
	}
	a, err := t.in.server.Ask(ctx, call{method: http.MethodPost, header: header, body: b.text()})
	if err != nil {
		return nil, err
	}
	if !a.succeeded() {
		return nil, first.result.refusal(a, t.said())
	}
	return answersOf(a, len(b.entries))
}

// said is what the client has sent.
func (t *transaction) said() said {
	s := said{}
	for _, p := range t.parts {
		if p.sent != nil {
			s.body(p.result.c.body)
		}
	}
	return s
}

// entry is what an entry comes to. References to what is new are to its fullUrl again, which the FHIR server resolves.
func (t *transaction) entry(p *part) entry {
	body := p.sent.body
	for name, other := range t.names {
		if other.isNew {
			body = bytes.ReplaceAll(body, []byte(quoted(other.as.String())), []byte(quoted(name)))
		}
	}
	e := entry{resource: body, request: requestOf(*p.sent)}
	if isURN(p.fullURL) && len(body) > 0 {
		e.fullURL = p.fullURL
	}
	return e
}

var errMismatch = errors.New("transaction-response that does not answer each entry")

// answersOf are the entries of the answer to a transaction.
func answersOf(a *answer, want int) ([]entry, error) {
	if err := a.requireJSON(); err != nil {
		return nil, err
	}
	b, err := parseBundle(a.body)
	if err != nil {
		return nil, withheld(err)
	}
	if len(b.entries) != want {
		return nil, withheld(fmt.Errorf("%w: %d of %d", errMismatch, len(b.entries), want))
	}
	return b.entries, nil
}

// respond is the answer to the transaction, when its writes are done.
func (t *transaction) respond(ctx context.Context, answers []entry) (*answer, error) {
	out := &bundle{kind: "transaction-response", total: -1}
	var size int64
	for _, p := range t.parts {
		var e entry
		switch {
		case p.sent != nil:
			e = entryOf(t.told(ctx, p, answers[0]))
			answers = answers[1:]
		case p.instead != nil:
			e = entryOf(p.instead, nil)
		default:
			e = entryOf(t.in.entryAnswer(ctx, &p.submitted, size))
		}
		size += int64(len(e.resource) + len(e.response))
		out.entries = append(out.entries, e)
	}
	return newAnswer(http.StatusOK, out.text()), nil
}

// told is what the client is told of a write: what it would be told if it were alone.
func (t *transaction) told(ctx context.Context, p *part, e entry) (*answer, error) {
	var r response
	if err := json.Unmarshal(e.response, &r); err != nil || len(r.Status) < 3 {
		return nil, withheld(errMismatch)
	}
	status, err := strconv.Atoi(r.Status[:3])
	if err != nil {
		return nil, withheld(errMismatch)
	}
	a := newAnswer(status, e.resource)
	for name, value := range map[string]string{"Location": r.Location, "Etag": r.ETag, "Last-Modified": httpDate(r.LastModified)} {
		if value != "" {
			a.header.Set(name, value)
		}
	}
	return t.in.judge.Under(ctx, p.c, p.i, func() (*answer, error) { return p.result.told(ctx, a) })
}
