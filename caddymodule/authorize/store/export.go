package store

import (
	"context"
	"time"
)

// An Exporter is a [Store] whose entries can be copied to another.
type Exporter interface {
	// Entries calls tell with every entry, unordered, and with the time that it has left; with some
	// perhaps twice. An entry that changes meanwhile is reported as it was before, as it is after, or
	// both. Entries ends with the first error of tell, which must not call the store.
	Entries(ctx context.Context, tell func(key string, value []byte, ttl time.Duration) error) error
}

// Copyable is a store that `fhir-store copy` copies from or to.
type Copyable interface {
	Store
	Exporter
}
