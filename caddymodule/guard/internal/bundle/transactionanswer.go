package bundle

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// send has the FHIR server do what the writes come to, and returns its answers in their order. Nothing of the client's
// Bundle goes on but what was judged.
func (t *transaction) send(ctx context.Context) ([]message.Entry, error) {
	b := &message.Bundle{Kind: "transaction", Total: -1}
	var first *part
	said := message.Said{} // by the client
	for _, p := range t.parts {
		if p.sent == nil {
			continue
		}
		if first == nil {
			first = p
		}
		b.Entries = append(b.Entries, t.entry(p))
		said.Body(p.result.C.Body)
	}
	if first == nil {
		return nil, nil
	}
	t.in.begin(interaction.Interaction{Kind: interaction.Bundle})
	header := http.Header{"Content-Type": {message.TypeJSON}}
	if prefer := first.sent.Header["Prefer"]; prefer != nil {
		header["Prefer"] = prefer
	}
	a, err := t.in.Server.Ask(ctx, message.Call{Method: http.MethodPost, Header: header, Body: b.Text()})
	if err != nil {
		return nil, err
	}
	if !a.Succeeded() {
		return nil, first.result.Refusal(a, said)
	}
	return answersOf(a, len(b.Entries))
}

// entry is what an entry comes to. References to what is new are to its fullUrl again, which the FHIR server resolves.
func (t *transaction) entry(p *part) message.Entry {
	body := p.sent.Body
	for name, other := range t.names {
		if other.isNew {
			body = bytes.ReplaceAll(body, []byte(message.Quoted(other.as.String())), []byte(message.Quoted(name)))
		}
	}
	e := message.Entry{Resource: body, Request: requestOf(*p.sent)}
	if isURN(p.fullURL) && len(body) > 0 {
		e.FullURL = p.fullURL
	}
	return e
}

var errMismatch = errors.New("transaction-response that does not answer each entry")

// answersOf are the entries of the answer to a transaction.
func answersOf(a *message.Answer, want int) ([]message.Entry, error) {
	if err := a.RequireJSON(); err != nil {
		return nil, err
	}
	b, err := message.ParseBundle(a.Body)
	if err != nil {
		return nil, message.Withheld(err)
	}
	if len(b.Entries) != want {
		return nil, message.Withheld(fmt.Errorf("%w: %d of %d", errMismatch, len(b.Entries), want))
	}
	return b.Entries, nil
}

// respond is the answer to the transaction, when its writes are done.
func (t *transaction) respond(ctx context.Context, answers []message.Entry) (*message.Answer, error) {
	out := &message.Bundle{Kind: "transaction-response", Total: -1}
	var size int64
	for _, p := range t.parts {
		var e message.Entry
		switch {
		case p.sent != nil:
			e = entryOf(t.told(ctx, p, answers[0]))
			answers = answers[1:]
		case p.instead != nil:
			e = entryOf(p.instead, nil)
		default:
			e = entryOf(t.in.entryAnswer(ctx, &p.submitted, size))
		}
		size += int64(len(e.Resource) + len(e.Response))
		out.Entries = append(out.Entries, e)
	}
	return out.Answer(), nil
}

// told is what the client is told of a write: what it would be told if it were alone.
func (t *transaction) told(ctx context.Context, p *part, e message.Entry) (*message.Answer, error) {
	var r response
	if err := json.Unmarshal(e.Response, &r); err != nil || len(r.Status) < 3 {
		return nil, message.Withheld(errMismatch)
	}
	status, err := strconv.Atoi(r.Status[:3])
	if err != nil {
		return nil, message.Withheld(errMismatch)
	}
	a := message.NewAnswer(status, e.Resource)
	for name, value := range map[string]string{"Location": r.Location, "Etag": r.ETag, "Last-Modified": httpDate(r.LastModified)} {
		if value != "" {
			a.Header.Set(name, value)
		}
	}
	return t.in.Judge.Under(ctx, p.c, p.i, func() (*message.Answer, error) { return p.result.Told(ctx, a) })
}
