package terminology

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

// budget is what one request may cost, in steps of some fifty nanoseconds. Everything done for the request spends from
// the same budget, however many codings, includes or validations it has. A nil budget has no limit. It is the context of
// the request as well: spending looks at it now and then, so that no paid loop goes on for a client that is gone.
type budget struct {
	context.Context
	limit int
	turn  func(ctx context.Context) (leave func(), err error) // waits until there is room for costly work; nil: there is
	leave func()                                              // gives the turn back; nil: none is held

	spent int
	next  int // when so much is spent, the context is looked at again
}

// stretch is how many steps are taken between two looks at the context, and how many a request may take without
// a turn: a few milliseconds.
const stretch = 50_000

// errSpent is wrapped in the error for a budget that is spent.
var errSpent = errors.New("too costly")

// ErrBusy is wrapped in the error, with status 503, for a costly request for which there is no room now.
var ErrBusy = errors.New("too many costly requests")

// budgetKey is the key under which a context holds its budget.
type budgetKey struct{}

// Value returns the budget itself for its key, so that it is found in contexts that are made of it.
func (b *budget) Value(key any) any {
	if key == (budgetKey{}) {
		return b
	}
	return b.Context.Value(key)
}

// budget returns the budget of a context, or a new one.
func (l *Library) budget(ctx context.Context) *budget {
	if b, ok := ctx.Value(budgetKey{}).(*budget); ok {
		return b
	}
	return &budget{Context: ctx, limit: l.bounds.gathered}
}

// spend pays for n steps before they are taken. It fails if the budget is spent, if there is no room for costly work, or
// with the context's error.
func (b *budget) spend(n int) error {
	if b == nil {
		return nil
	}
	if b.spent += n; b.spent < b.next {
		return nil
	}
	if b.spent > b.limit {
		return &Error{Status: http.StatusUnprocessableEntity, Code: "too-costly", Err: errSpent,
			Text: fmt.Sprintf("the operation gathers or looks at more than %d codes or texts; ask for less at once", b.limit)}
	}
	if err := b.Context.Err(); err != nil {
		return err
	}
	if b.spent > stretch {
		if err := b.enter(); err != nil {
			return err
		}
	}
	b.next = min(b.spent+stretch, b.limit+1)
	return nil
}

// enter waits for a turn, unless the request holds one.
func (b *budget) enter() (err error) {
	if b == nil || b.turn == nil || b.leave != nil {
		return nil
	}
	if b.leave, err = b.turn(b.Context); err == nil || b.Context.Err() != nil {
		return err
	}
	return &Error{Status: http.StatusServiceUnavailable, Code: "throttled", Err: errors.Join(ErrBusy, err),
		Text: "there is no room for a costly request now; try again in a few seconds"}
}

// rest gives the turn back while the request waits: for a definition to be fetched, or for a client to read the answer.
func (b *budget) rest() {
	if b == nil || b.leave == nil {
		return
	}
	b.leave()
	b.leave, b.next = nil, 0
}

// read pays for the reading of a number of bytes of a resource.
func (b *budget) read(n int) error { return b.spend(n / readBytes) }

// compare pays for texts that are compared with a display.
func (b *budget) compare(texts []codesystem.Text) error {
	cost := 0
	for i := range texts {
		cost += 4 + len(texts[i].Value)/4
	}
	return b.spend(cost)
}

// readBytes is how many bytes of a resource are read in one step.
const readBytes = 16

// isCostly reports whether the request has taken so many steps that it holds a turn, or will need one.
func (b *budget) isCostly() bool { return b != nil && b.spent > stretch }

// isOwn reports whether an error concerns one request alone, and not others that wait for the same result.
func isOwn(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrBusy)
}
