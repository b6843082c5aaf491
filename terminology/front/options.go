package front

import (
	"sync/atomic"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
)

// Options are those of a [Front].
type Options struct {
	// Base is the path of the FHIR API, such as /fhir/R4. Required.
	Base string

	// AllOperations answers the registered operations and metadata here too, and refuses what nobody answers. Default: false,
	// only $expand.
	AllOperations bool

	// Handler answers operations here. Required, with its Current.
	Handler *api.Handler

	// Epoch identifies a library's contents. Answers made in another epoch are not used. Required.
	Epoch func(*terminology.Library) string

	// State is what outlives this front. Required.
	State *State

	// VaryBy says who shares the answers of the next handler. Default: [cache.VaryByUser].
	VaryBy cache.VaryBy

	// VaryHeaders are headers that the answers of the next handler depend on. Default: none.
	VaryHeaders []string

	// MaxAge is how long clients may use an answer without validating it. Default: 0.
	MaxAge time.Duration

	// NextTimeout bounds the time in which the next handler makes an answer to be stored. Required.
	NextTimeout time.Duration

	// Host is the server around. Required.
	Host Host
}

// Front answers requests for operations, or has others answer them. Make one with [New]. It is safe for concurrent use.
type Front struct {
	options    Options
	state      *State
	host       Host
	operations operations
	sightings  *sightings
	schemes    atomic.Pointer[schemes]
	public     []string // Cache-Control of answers made here
	private    []string // likewise, to authorised requests
}
