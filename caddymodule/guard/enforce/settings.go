package enforce

import (
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fairmemory"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/operation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/server"
)

type (
	// Sealing seals links so that nobody but us can make or read them.
	Sealing = paging.Sealing

	// Operation is an operation that may be called.
	Operation = operation.Operation

	// Limits bound what one request may cost. The zero value means the defaults.
	Limits = server.Limits
)

// NewOperations returns the default operations with a site's own: what it says of a name takes the place of the default.
func NewOperations(own ...Operation) operation.Operations { return operation.NewOperations(own...) }

// ParseOperation reads the words that say how an operation is judged: its name, what it does, and for which types.
func ParseOperation(words ...string) (Operation, error) { return operation.ParseOperation(words...) }

// AnswerOf is how long an answer may be that is judged in memory of a size.
func AnswerOf(memory int64) int64 { return server.AnswerOf(memory) }

// NewMemory returns memory of a size in bytes, for answers up to the limit. Size 0: 256 MiB, or as much as the limit takes.
func NewMemory(size int64, l Limits) (*fairmemory.Memory, error) { return server.NewMemory(size, l) }
