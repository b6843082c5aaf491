package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fairmemory"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
)

// Patience is how long a request waits for memory.
const Patience = 10 * time.Second

// timesHeld is how many bytes one byte counts for that is judged: it is held as it came, and as it is written anew.
const timesHeld = 2

// smallestMemory is how many answers of the greatest length the memory takes at least: one counts twice, and so does the
// body that is judged by it.
const smallestMemory = 2 * timesHeld

var errMemory = errors.New("max_memory is too small: it must be at least")

// NewMemory returns memory of a size in bytes, for answers up to the limit. Size 0: 256 MiB, or as much as the limit takes.
func NewMemory(size int64, l Limits) (*fairmemory.Memory, error) {
	smallest := smallestMemory * l.orDefaults().Answer
	size = orDefault(size, max(defaultMemory, smallest))
	if size < smallest {
		return nil, fmt.Errorf("%w %d bytes", errMemory, smallest)
	}
	return fairmemory.New(size, Patience), nil
}

// Reserve has the request hold bytes more that are to be judged, the first of so many at most. It waits for them if need be.
func (x *Server) Reserve(ctx context.Context, bytes int, most int64) error {
	err := x.Share.Grow(ctx, timesHeld*int64(bytes), timesHeld*most)
	if errors.Is(err, fairmemory.ErrTooMuch) {
		return message.TooCostly("What has to be judged is longer than the server's memory allows: ask for less at once.")
	}
	if err != nil {
		return busy(err)
	}
	return nil
}

// Held is how much memory the request holds.
func (x *Server) Held() int64 { return x.Share.Held() }

// Keep says that of all that was held since a moment, nothing is in use but an answer.
func (x *Server) Keep(since int64, a *message.Answer) {
	if a != nil {
		since += timesHeld * int64(len(a.Body))
	}
	x.Share.ShrinkTo(since)
}

// busy refuses for a while what takes more memory than the others leave.
func busy(err error) *guard.Error {
	return &guard.Error{
		Status: http.StatusServiceUnavailable, Description: "Too much is being judged at once: try again later.",
		Wait: Patience, Err: fmt.Errorf("%w: %w", message.ErrBusy, err),
	}
}

// Reading reads the client's body up to a byte more than its limit, and reserves memory for it as it comes.
func (x *Server) Reading(ctx context.Context, body io.Reader) io.Reader {
	left := x.Limits.Body
	return &reservingReader{io.LimitReader(body, left+1), func(bytes int) error {
		defer func() { left -= int64(bytes) }()
		return x.Reserve(ctx, bytes, left)
	}}
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
