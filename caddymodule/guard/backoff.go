package guard

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// backOffTime is the pause after the introspection endpoint did not answer. Then one token is tried; the others follow
// once it is answered.
const backOffTime = 2 * time.Second

// errNoAnswer says that an endpoint failed or timed out. An answer that cannot be understood is an answer: otherwise a
// made-up token that the endpoint chokes on would lock out all others.
var errNoAnswer = errors.New("no answer")

// WaitError refuses a token that cannot be verified before some time has passed.
type WaitError struct {
	Wait time.Duration // until it may be verified
	Why  string        // it cannot be now
}

// Error implements error.
func (e *WaitError) Error() string { return fmt.Sprintf("%s, left alone for %v", e.Why, e.Wait) }

// backOff pauses requests to an endpoint that does not answer, so that tokens are refused at once instead of after a
// timeout each.
type backOff struct {
	mu     sync.Mutex
	until  time.Time // zero while the endpoint answers
	trying bool      // one is asked about after that
}

// check returns an error during the pause.
func (b *backOff) check(now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refuse(now)
}

// begin is check for a caller that then makes a request and calls end.
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
	return &WaitError{max(wait, time.Second), "the endpoint did not answer"}
}

// end takes the result of a request.
func (b *backOff) end(now time.Time, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trying, b.until = false, time.Time{}
	if errors.Is(err, errNoAnswer) {
		b.until = now.Add(backOffTime)
	}
}
