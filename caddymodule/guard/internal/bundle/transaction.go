package bundle

import (
	"context"
	"errors"
	"net/http"

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
	t.in.begin(p.i)
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
		if p.sent == nil || p.sent.Method == http.MethodPost || p.sent.Query != "" {
			continue
		}
		if seen[p.sent.Path] {
			return p.refused(message.Invalid(errOverlap, "Another entry writes the same resource."))
		}
		seen[p.sent.Path] = true
	}
	return nil
}
