package server

import (
	"errors"
	"fmt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fairmemory"
)

// smallestMemory is how many answers of the greatest length the memory takes at least: one counts twice, and so does the
// body that is judged by it.
const smallestMemory = 2 * timesHeld

const defaultMemory = 256 << 20

var errMemory = errors.New("max_memory is too small: it must be at least")

// NewMemory returns memory of a size in bytes, for answers up to the limit. Size 0: 256 MiB, or as much as the limit takes.
func NewMemory(size int64, l Limits) (*fairmemory.Memory, error) {
	smallest := smallestMemory * l.orDefaults().Answer
	if size <= 0 {
		size = max(defaultMemory, smallest)
	}
	if size < smallest {
		return nil, fmt.Errorf("%w %d bytes", errMemory, smallest)
	}
	return fairmemory.New(size, Patience), nil
}
