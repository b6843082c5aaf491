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
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/write"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// transaction answers a transaction. Any entry that is refused has it refused as a whole.
func (x *Bundles) transaction(ctx context.Context, s *submission) (*message.Answer, error) {
	t := &transaction{in: x, names: map[string]*part{}}
	if err := t.readAll(s); err != nil {
		return nil, err
	}
	if err := t.judgeAll(ctx); err != nil {
		return nil, err
	}
	answers, err := t.send(ctx)
	if err != nil {
		return nil, err
	}
	return t.respond(ctx, answers)
}

// readAll reads all entries as requests.
func (t *transaction) readAll(s *submission) error {
	for n := range s.entries {
		p := &part{submitted: s.entries[n], n: n}
		var err error
		if p.c, p.i, err = p.call(); err == nil && !p.isWrite() && !p.isRead() {
			err = message.Invalid(message.ErrBody, "A transaction holds reads, searches and writes, and nothing else.")
		}
		if err == nil {
			err = t.name(p)
		}
		if err != nil {
			return p.refused(err)
		}
		t.parts = append(t.parts, p)
	}
	return nil
}

// judgeAll judges all entries. Those with criteria come first: what others refer to may be what they find.
func (t *transaction) judgeAll(ctx context.Context) error {
	if err := t.promise(); err != nil {
		return err
	}
	for _, conditional := range []bool{true, false} {
		for _, p := range t.parts {
			if p.isConditional() != conditional {
				continue
			}
			if err := t.judgePart(ctx, p); err != nil {
				return p.refused(err)
			}
		}
	}
	return t.checkDistinct()
}

// judgePart judges an entry.
func (t *transaction) judgePart(ctx context.Context, p *part) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t.in.begin()
	var err error
	switch {
	case p.isWrite():
		err = t.judgeWrite(ctx, p)
	case p.i.Kind == interaction.Read || p.i.Kind == interaction.VRead:
		err = t.judgeRead(ctx, p)
	default:
		err = t.in.Entries.CheckSearch(ctx, p.c, p.i)
	}
	t.in.Entries.Decided(p.i, err)
	return err
}

// judgeRead has a read refused that would fail, since it would tell what is there by what becomes of the transaction.
// What the transaction itself writes, it may read.
func (t *transaction) judgeRead(ctx context.Context, p *part) error {
	for _, other := range t.parts {
		if other.i.Kind == interaction.Update && other.i.Type == p.i.Type && other.i.ID == p.i.ID {
			return nil
		}
	}
	before := t.in.Server.Held()
	_, err := t.in.Entries.Answer(ctx, p.c, p.i)
	t.in.Server.Keep(before, nil)
	return err
}

// judgeWrite judges a write, and keeps what it comes to.
func (t *transaction) judgeWrite(ctx context.Context, p *part) error {
	body, err := t.resolved(p, p.c.Body)
	if err != nil {
		return err
	}
	p.c.Body = body
	a, err := t.in.Entries.Collect(ctx, p.c, p.i, func(r write.Result, c message.Call) (*message.Answer, error) {
		p.result, p.sent = r, &c
		return message.NewAnswer(http.StatusOK, nil), t.checkResolved(c.Body)
	})
	if err != nil {
		return err
	}
	if p.sent == nil {
		p.instead = a
	}
	if p.isConditional() {
		return t.settle(p)
	}
	return nil
}

var errOverlap = errors.New("two entries write the same resource")

// checkDistinct refuses two entries that write the same resource (R4 http.html#trules).
func (t *transaction) checkDistinct() error {
	seen := map[string]bool{}
	for _, p := range t.parts {
		if p.sent == nil {
			continue
		}
		of := p.sent.Path
		if p.result.Confined != (interaction.Reference{}) {
			of = p.result.Confined.String()
		} else if p.sent.Method == http.MethodPost || p.sent.Query != "" {
			continue
		}
		if seen[of] {
			return p.refused(message.Invalid(errOverlap, "Another entry writes the same resource."))
		}
		seen[of] = true
	}
	return nil
}

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
	t.in.begin()
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
	if local, ok := t.in.At.LocalURL(r.Location); ok {
		r.Location = local
	}
	for name, value := range map[string]string{"Location": r.Location, "Etag": r.ETag, "Last-Modified": httpDate(r.LastModified)} {
		if value != "" {
			a.Header.Set(name, value)
		}
	}
	of, err := t.in.Judge.ForCall(ctx, p.c, p.i)
	if err != nil {
		return nil, err
	}
	p.result.Judge = of // which has not looked up what other entries have changed since
	return p.result.Told(ctx, a)
}
