package guard

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// backOffTime is how long the introspection endpoint is left alone after it did not
// answer. Then one token is asked about, and the others when that was answered.
const backOffTime = 2 * time.Second

// errNoAnswer says that an endpoint failed, or hung. An answer that is not understood
// is one: else who makes up a token that the endpoint chokes on keeps all others out.
var errNoAnswer = errors.New("no answer")

// waitError refuses since an endpoint did not answer lately.
type waitError struct{ wait time.Duration }

// Error implements error.
func (e *waitError) Error() string {
	return fmt.Sprintf("the endpoint did not answer, left alone for %v", e.wait)
}

// backOff leaves an endpoint alone that does not answer, so that tokens are refused at
// once rather than wait for a timeout each.
type backOff struct {
	mu     sync.Mutex
	until  time.Time // zero while the endpoint answers
	trying bool      // one is asked about after that
}

// check refuses while the endpoint is left alone.
func (b *backOff) check(now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refuse(now)
}

// begin is check for who is to ask at once. It must be followed by end.
func (b *backOff) begin(now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.refuse(now); err != nil {
		return err
	}
	b.trying = !b.until.IsZero()
	return nil
}

func (b *backOff) refuse(now time.Time) error {
	wait := b.until.Sub(now)
	if b.until.IsZero() || wait <= 0 && !b.trying {
		return nil
	}
	return &waitError{max(wait, time.Second)}
}

// end takes what came of asking.
func (b *backOff) end(now time.Time, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trying, b.until = false, time.Time{}
	if errors.Is(err, errNoAnswer) {
		b.until = now.Add(backOffTime)
	}
}
