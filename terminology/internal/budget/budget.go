// Package budget limits the cost of a request. All work for the request spends from its [Budget], which also makes
// costly requests wait for a slot, and stops the work when the client disconnects.
package budget

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// Budget limits the cost of a request in steps of about fifty nanoseconds. All codings, includes and validations of the
// request charge it. A nil Budget is unlimited. It is also the context of the request, which Charge checks
// periodically, so that work stops when the client disconnects.
type Budget struct {
	context.Context
	limit   int
	acquire func(ctx context.Context) (release func(), err error) // acquires a slot for costly work; nil means unlimited slots
	release func()                                                // releases the slot; nil if none is held

	spent     int
	nextCheck int // value of spent at the next check of the context
}

// stepsPerCheck is the number of steps, a few milliseconds, between checks of the context and before a request needs a slot.
const stepsPerCheck = 50_000

// ErrExceeded is wrapped by the error of a request that has exceeded its budget.
var ErrExceeded = errors.New("too costly")

// ErrBusy is wrapped by the error, with status 503, of a costly request that got no slot.
var ErrBusy = errors.New("too many costly requests")

// New returns a budget of limit steps. acquire acquires a slot for costly work; nil means unlimited slots.
func New(ctx context.Context, limit int, acquire func(ctx context.Context) (release func(), err error)) Budget {
	return Budget{Context: ctx, limit: limit, acquire: acquire}
}

type budgetKey struct{}

// Value returns the budget for its own key, so that derived contexts carry it.
func (b *Budget) Value(key any) any {
	if key == (budgetKey{}) {
		return b
	}
	return b.Context.Value(key)
}

// FromContext returns the budget of the context, or a new one with the given limit.
func FromContext(ctx context.Context, limit int) *Budget {
	if b, ok := ctx.Value(budgetKey{}).(*Budget); ok {
		return b
	}
	return &Budget{Context: ctx, limit: limit}
}

// Charge charges n steps in advance. It returns an error if the budget is exceeded or no slot is available, or the
// context's error.
func (b *Budget) Charge(n int) error {
	if b == nil {
		return nil
	}
	if b.spent += n; b.spent < b.nextCheck {
		return nil
	}
	if b.spent > b.limit {
		return &outcome.Error{Status: http.StatusUnprocessableEntity, Code: "too-costly", Err: ErrExceeded,
			Text: fmt.Sprintf("the operation examines more than %d codes or texts; request less at once", b.limit)}
	}
	if err := b.Context.Err(); err != nil {
		return err
	}
	if b.spent > stepsPerCheck {
		if err := b.AcquireSlot(); err != nil {
			return err
		}
	}
	b.nextCheck = min(b.spent+stepsPerCheck, b.limit+1)
	return nil
}

// AcquireSlot acquires a slot unless the request already has one.
func (b *Budget) AcquireSlot() (err error) {
	if b == nil || b.acquire == nil || b.release != nil {
		return nil
	}
	if b.release, err = b.acquire(b.Context); err == nil || b.Context.Err() != nil {
		return err
	}
	return &outcome.Error{Status: http.StatusServiceUnavailable, Code: "throttled", Err: errors.Join(ErrBusy, err),
		Text: "too many costly requests are running; try again in a few seconds"}
}

// ReleaseSlot releases the slot while the request waits for a definition or for the client to read the response.
func (b *Budget) ReleaseSlot() {
	if b == nil || b.release == nil {
		return
	}
	b.release()
	b.release, b.nextCheck = nil, 0
}

// ChargeRead charges for reading n bytes of a resource.
func (b *Budget) ChargeRead(n int) error { return b.Charge(n / ReadBytesPerStep) }

// ChargeCompare charges for comparing texts with a display.
func (b *Budget) ChargeCompare(texts []codesystem.Text) error {
	cost := 0
	for i := range texts {
		cost += 4 + len(texts[i].Value)/4
	}
	return b.Charge(cost)
}

// ReadBytesPerStep is the number of bytes of a resource read in one step.
const ReadBytesPerStep = 16

// IsCostly reports whether the request has a slot or will need one.
func (b *Budget) IsCostly() bool { return b != nil && b.spent > stepsPerCheck }

// IsRequestSpecific reports whether an error concerns only this request, and not others that wait for the same result.
func IsRequestSpecific(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrBusy)
}

// PlainBytesPerStep is the number of bytes examined in one step.
const PlainBytesPerStep = 32
