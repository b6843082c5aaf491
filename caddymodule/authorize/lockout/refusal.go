package lockout

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fairqueue"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

const (
	// QueueTimeout is how long a password waits in each of two queues: behind other attempts
	// at the same account, and to be compared. After that, any answer is better than a
	// browser that seems to hang.
	QueueTimeout = 10 * time.Second

	// BusyWait is when to try again after a [BusyError].
	BusyWait = 5 * time.Second
)

// QueueError turns an error of a queue into a [BusyError], unless the browser has
// disconnected.
func QueueError(err error) error {
	if errors.Is(err, fairqueue.ErrFull) || errors.Is(err, context.DeadlineExceeded) {
		return busy(err)
	}
	return err
}

// BusyError refuses an attempt because there are too many others.
type BusyError struct{ error }

func busy(cause error) *oauth2.Error {
	return &oauth2.Error{
		Code: "temporarily_unavailable", Status: http.StatusServiceUnavailable,
		Description: "too many people are signing in right now", Err: BusyError{cause},
	}
}

// WaitError refuses an attempt without making it.
type WaitError struct {
	Wait time.Duration // until the next attempt
}

// Error implements error.
func (e *WaitError) Error() string { return "wait " + inWords(e.Wait) }

// RetryAfter returns how long to wait after a refusal; 0 if waiting does not help.
func RetryAfter(err error) time.Duration {
	var wait *WaitError
	switch {
	case errors.As(err, &wait):
		return wait.Wait
	case errors.As(err, new(BusyError)):
		return BusyWait
	}
	return 0
}

// SetRetryAfter tells the browser how long to wait (RFC 9110 §10.2.3).
func SetRetryAfter(w http.ResponseWriter, wait time.Duration) {
	w.Header().Set("Retry-After", strconv.Itoa(wholeSeconds(wait)))
}

func wholeSeconds(wait time.Duration) int { return int(math.Ceil(wait.Seconds())) }

// inWords rounds up, so that nobody tries again too early.
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
