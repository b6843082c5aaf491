package store

import (
	"context"
	"time"
)

// An Exporter is a [Store] whose entries can be copied to another.
type Exporter interface {
	// Entries tells of all entries, unordered, each with how long it has left. It may tell of an
	// entry twice. What changes meanwhile is told as it was before or as it is after, or both. It
	// ends with the first error of tell, which must not call the store.
	Entries(ctx context.Context, tell func(key string, value []byte, ttl time.Duration) error) error
}
