package redisstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// ErrUnsuitable says that a server answers, but must not be used: what is stored there could
// be lost, or cannot be stored.
var ErrUnsuitable = errors.New("this Redis server cannot be used")

// refusals are what a server answers that has not made a change and may later, beside what the
// network brings.
var refusals = []string{
	"READONLY", "LOADING", "MASTERDOWN", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "MISCONF", "BUSY",
	"UNBLOCKED", "NOAUTH", "WRONGPASS", "UNKILLABLE",
}

// failure says what an error of the client means for a caller with a context.
func failure(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case err == nil, errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrFull), errors.Is(err, ErrUnsuitable):
		return err // known already
	case cause != nil && !errors.Is(cause, errTimeout): // nobody waits for it any more
		return cause
	case answers(err, "OOM"):
		return fmt.Errorf("%w: Redis is at its maxmemory", store.ErrFull)
	case redis.HasErrorPrefix(err, "NEWER"):
		return errNewer
	case isRight(err):
		return &store.Fault{Cause: store.CauseRights, Err: fmt.Errorf("the store refuses it to the user, who lacks rights (docs/replicas.md): %w", err)}
	case !isRefusal(err):
		return fmt.Errorf("redis: %w", err)
	}
	return fmt.Errorf("%w: %s", store.ErrUnavailable, fmt.Sprint(err)) // not wrapped: it may be the end of a context, but not of the caller's
}

// isRefusal reports whether an error passes without anybody's doing anything about the program.
func isRefusal(err error) bool {
	if _, answered := errors.AsType[redis.Error](err); !answered {
		return true
	}
	for _, prefix := range refusals {
		if answers(err, prefix) {
			return true
		}
	}
	return redis.HasErrorPrefix(err, "max number of clients")
}

// answers reports whether a server answers with an error of a kind. Before Redis 7.0, that of a
// command in the script comes in the text of another.
func answers(err error, kind string) bool {
	return redis.HasErrorPrefix(err, kind) ||
		redis.HasErrorPrefix(err, "Error running script") && strings.Contains(err.Error(), ": -"+kind+" ")
}

// The client logs what it returns as an error as well, for whoever looks closely.
func init() { redis.SetLogger(debugLogger{}) }

type debugLogger struct{}

// Printf is called by the client.
func (debugLogger) Printf(ctx context.Context, format string, v ...any) {
	if slog.Default().Enabled(ctx, slog.LevelDebug) {
		slog.DebugContext(ctx, "redis: "+fmt.Sprintf(format, v...))
	}
}
