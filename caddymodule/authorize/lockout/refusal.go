package lockout

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fairqueue"
)

// TurnTime is how long a password waits at each of two places: until fewer tries for
// the same account are under way, and for its turn to be compared. After that, an answer
// is better than a browser that seems to hang.
const TurnTime = 10 * time.Second

// Unserved makes a refusal of an error of waiting, unless the browser is gone.
func Unserved(err error) error {
	if errors.Is(err, fairqueue.ErrFull) || errors.Is(err, context.DeadlineExceeded) {
		return busy(err)
	}
	return err
}

// BusyTime is when who found no turn may try again.
const BusyTime = 5 * time.Second

// BusyError refuses a try because of all the others that are made.
type BusyError struct{ error }

// busy refuses a try without a look at it, for a cause.
func busy(cause error) *oauth2.Error {
	return &oauth2.Error{
		Code: "temporarily_unavailable", Status: http.StatusServiceUnavailable,
		Description: "too many people are signing in right now", Err: BusyError{cause},
	}
}

// WaitOf is how long to wait after a refusal until the next try; 0 where there is
// nothing to wait for.
func WaitOf(err error) time.Duration {
	var wait *WaitError
	switch {
	case errors.As(err, &wait):
		return wait.Wait
	case errors.As(err, new(BusyError)):
		return BusyTime
	}
	return 0
}

// SetRetryAfter tells the browser how long to wait (RFC 9110 §10.2.3), and returns
// the words for the person.
func SetRetryAfter(w http.ResponseWriter, wait time.Duration) string {
	w.Header().Set("Retry-After", strconv.Itoa(wholeSeconds(wait)))
	return inWords(wait)
}

func wholeSeconds(wait time.Duration) int { return int(math.Ceil(wait.Seconds())) }

// inWords is how long a wait is, as people say it: never too short.
func inWords(wait time.Duration) string {
	seconds := wholeSeconds(wait)
	switch minutes := (seconds + 59) / 60; {
	case seconds == 1:
		return "a second"
	case seconds < 60:
		return strconv.Itoa(seconds) + " seconds"
	case minutes == 1:
		return "a minute"
	default:
		return strconv.Itoa(minutes) + " minutes"
	}
}

// WaitError refuses a try without a look at it.
type WaitError struct {
	Wait time.Duration // until the next try
}

// Error implements error.
func (e *WaitError) Error() string { return "wait " + inWords(e.Wait) }
