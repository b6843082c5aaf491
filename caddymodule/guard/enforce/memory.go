package enforce

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/fairmemory"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
)

// Patience is how long a request waits for memory.
const Patience = 10 * time.Second

// timesHeld is how many bytes one byte counts for that is judged: it is held as it came, and as it is written anew.
const timesHeld = 2

// smallestMemory is how many answers of the greatest length the memory takes at least: one counts twice, and so does the
// body that is judged by it.
const smallestMemory = 2 * timesHeld

var errMemory = errors.New("max_memory is too small: it must be at least four times max_answer")

// NewMemory returns memory of a size in bytes, for answers up to the limit. Size 0: 256 MiB, or as much as the limit takes.
func NewMemory(size int64, l Limits) (*fairmemory.Memory, error) {
	smallest := smallestMemory * l.orDefaults().Answer
	size = orDefault(size, max(defaultMemory, smallest))
	if size < smallest {
		return nil, fmt.Errorf("%w: %d bytes", errMemory, smallest)
	}
	return fairmemory.New(size, Patience), nil
}

// reserve has the request hold bytes more that are to be judged, the first of so many at most. It waits for them if need be.
func (x *server) reserve(ctx context.Context, bytes int, most int64) error {
	err := x.share.Grow(ctx, timesHeld*int64(bytes), timesHeld*most)
	if errors.Is(err, fairmemory.ErrTooMuch) {
		return tooCostly("What has to be judged is longer than the server's memory allows: ask for less at once.")
	}
	if err != nil {
		return busy(err)
	}
	return nil
}

// Held is how much memory the request holds.
func (x *server) Held() int64 { return x.share.Held() }

// Keep says that of all that was held since a moment, nothing is in use but an answer.
func (x *server) Keep(since int64, a *answer) {
	if a != nil {
		since += timesHeld * int64(len(a.body))
	}
	x.share.ShrinkTo(since)
}

// busy refuses for a while what takes more memory than the others leave.
func busy(err error) *guard.Error {
	return &guard.Error{
		Status: http.StatusServiceUnavailable, Description: "Too much is being judged at once: try again later.",
		Wait: Patience, Err: fmt.Errorf("%w: %w", ErrBusy, err),
	}
}

// reservingReader reads a body, for which memory is reserved as it comes.
type reservingReader struct {
	io.Reader
	reserve func(bytes int) error
}

// Read implements io.Reader.
func (r *reservingReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if refused := r.reserve(n); refused != nil {
		return 0, refused
	}
	return n, err
}
