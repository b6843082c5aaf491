// Package budget bounds what one request may cost. All that works for the request spends from its [Budget], which also
// makes costly requests wait for their turn, and ends work when the client has gone.
package budget

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// Budget bounds the cost of one request, in steps of some fifty nanoseconds. All codings, includes and validations of the
// request spend from it. A nil budget has no limit. It is also the context of the request, which spend checks now and
// then: work stops when the client has gone.
type Budget struct {
	context.Context
	limit int
	turn  func(ctx context.Context) (leave func(), err error) // waits for room for costly work; nil: there always is
	leave func()                                              // gives the turn back; nil: none is held

	spent int
	next  int // the value of spent at which the context is checked again
}

// stretch is the number of steps between two checks of the context, and before a request needs a turn: a few
// milliseconds.
const stretch = 50_000

// ErrSpent is wrapped in the error for a request whose budget is spent.
var ErrSpent = errors.New("too costly")

// ErrBusy is wrapped in the error, with status 503, for a costly request that there is no room for.
var ErrBusy = errors.New("too many costly requests")

// New returns the budget of a request, of so many steps. A costly one waits for its turn; nil: there always is room.
func New(ctx context.Context, limit int, turn func(ctx context.Context) (leave func(), err error)) Budget {
	return Budget{Context: ctx, limit: limit, turn: turn}
}

type budgetKey struct{}

// Value returns the budget itself for its key, so that contexts derived from it have it.
func (b *Budget) Value(key any) any {
	if key == (budgetKey{}) {
		return b
	}
	return b.Context.Value(key)
}

// Of returns the context's budget, or a new one with a limit.
func Of(ctx context.Context, limit int) *Budget {
	if b, ok := ctx.Value(budgetKey{}).(*Budget); ok {
		return b
	}
	return &Budget{Context: ctx, limit: limit}
}

// Spend pays for n steps in advance. It fails if the budget is spent, if there is no room for costly work, or with the
// context's error.
func (b *Budget) Spend(n int) error {
	if b == nil {
		return nil
	}
	if b.spent += n; b.spent < b.next {
		return nil
	}
	if b.spent > b.limit {
		return &outcome.Error{Status: http.StatusUnprocessableEntity, Code: "too-costly", Err: ErrSpent,
			Text: fmt.Sprintf("the operation gathers or looks at more than %d codes or texts; ask for less at once", b.limit)}
	}
	if err := b.Context.Err(); err != nil {
		return err
	}
	if b.spent > stretch {
		if err := b.Enter(); err != nil {
			return err
		}
	}
	b.next = min(b.spent+stretch, b.limit+1)
	return nil
}

// Enter waits for a turn unless the request holds one.
func (b *Budget) Enter() (err error) {
	if b == nil || b.turn == nil || b.leave != nil {
		return nil
	}
	if b.leave, err = b.turn(b.Context); err == nil || b.Context.Err() != nil {
		return err
	}
	return &outcome.Error{Status: http.StatusServiceUnavailable, Code: "throttled", Err: errors.Join(ErrBusy, err),
		Text: "there is no room for a costly request now; try again in a few seconds"}
}

// Rest gives the turn back while the request waits for a definition, or for the client to read the answer.
func (b *Budget) Rest() {
	if b == nil || b.leave == nil {
		return
	}
	b.leave()
	b.leave, b.next = nil, 0
}

// Read pays for reading n bytes of a resource.
func (b *Budget) Read(n int) error { return b.Spend(n / ReadBytes) }

// Compare pays for comparing texts with a display.
func (b *Budget) Compare(texts []codesystem.Text) error {
	cost := 0
	for i := range texts {
		cost += 4 + len(texts[i].Value)/4
	}
	return b.Spend(cost)
}

// ReadBytes is the number of bytes of a resource read in one step.
const ReadBytes = 16

// IsCostly reports whether the request holds a turn or will need one.
func (b *Budget) IsCostly() bool { return b != nil && b.spent > stretch }

// IsOwn reports whether an error concerns this request alone, and not others that wait for the same result.
func IsOwn(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrBusy)
}

// PlainBytes is how many bytes are looked at in one step.
const PlainBytes = 32
