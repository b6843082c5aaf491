// Package budget limits the cost of requests. All work for a request is charged to its [Budget]. A costly request must also
// acquire a slot. The work stops when the client disconnects.
package budget

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// Budget limits the cost of a request, in steps of about fifty nanoseconds. All codings, includes and validations of the
// request are charged to it. A nil Budget is unlimited. Budget is also the context of the request. Charge checks it
// periodically, so that work stops when the client disconnects.
type Budget struct {
	context.Context
	limit   int
	acquire func(ctx context.Context) (release func(), err error) // acquires a slot for costly work; nil: no limit on slots
	release func()                                                // releases the slot; nil if the request has no slot

	spent     int
	nextCheck int // value of spent at which the context is checked next
}

// stepsPerCheck is the number of steps (a few ms) between checks of the context. Requests that cost more need a slot.
const stepsPerCheck = 50_000

// ErrExceeded is wrapped by the error for a request that exceeds its budget.
var ErrExceeded = errors.New("too costly")

// ErrBusy is wrapped by the error (status 503) for a costly request that could not acquire a slot.
var ErrBusy = errors.New("too many costly requests")

// New returns a budget of limit steps. acquire acquires a slot for costly work; nil means that slots are unlimited.
func New(ctx context.Context, limit int, acquire func(ctx context.Context) (release func(), err error)) Budget {
	return Budget{Context: ctx, limit: limit, acquire: acquire}
}

type budgetKey struct{}

// Value implements [context.Context], so that [FromContext] finds the budget in derived contexts.
func (b *Budget) Value(key any) any {
	if key == (budgetKey{}) {
		return b
	}
	return b.Context.Value(key)
}

// FromContext returns the budget in ctx, or a new one with the given limit if there is none.
func FromContext(ctx context.Context, limit int) *Budget {
	if b, ok := ctx.Value(budgetKey{}).(*Budget); ok {
		return b
	}
	return &Budget{Context: ctx, limit: limit}
}

// Charge charges n steps in advance. It fails if the budget is exceeded, no slot is available, or the context is done.
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

// AcquireSlot acquires a slot if the request does not have one yet.
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

// ReleaseSlot releases the slot, e.g. while the request waits for a definition or for the client to read the response.
func (b *Budget) ReleaseSlot() {
	if b == nil || b.release == nil {
		return
	}
	b.release()
	b.release, b.nextCheck = nil, 0
}

// ChargeRead charges for reading n bytes of a resource.
func (b *Budget) ChargeRead(n int) error { return b.Charge(n / ReadBytesPerStep) }

// ChargeComparisons charges for comparing each of texts with a display.
func (b *Budget) ChargeComparisons(texts []codesystem.Text) error {
	cost := 0
	for i := range texts {
		cost += 4 + len(texts[i].Value)/4
	}
	return b.Charge(cost)
}

// ReadBytesPerStep is the number of bytes of a resource that are read per step.
const ReadBytesPerStep = 16

// IsCostly reports whether the request needs a slot: its cost so far exceeds stepsPerCheck.
func (b *Budget) IsCostly() bool { return b != nil && b.spent > stepsPerCheck }

// IsRequestSpecific reports whether an error affects only this request, but not others that wait for the same result.
func IsRequestSpecific(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrBusy)
}

// PlainBytesPerStep is the number of bytes that are examined per step without a regex.
const PlainBytesPerStep = 32
