package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

func (c *connection) check(ctx context.Context) error {
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	return c.handleError(ctx, c.eachMaster(ctx, checkServer))
}

func checkServer(ctx context.Context, server *redis.Client) error {
	text, err := server.Info(ctx, "everything").Result()
	if err != nil {
		return checkError(ctx, err)
	}
	info := parseInfo(text)
	version := info["redis_version"] // for Valkey, the version of Redis with which it is compatible
	switch {
	case !versionAtLeast(version, 6, 2):
		return fmt.Errorf("%w: Redis %s is too old: 6.2 or newer is required", ErrUnsuitable, version)
	case info["role"] == "slave":
		return fmt.Errorf("%w: the server is a read-only replica of %s: set url to that server, or use Sentinel", ErrUnsuitable, info["master_host"])
	}
	return checkEvictionPolicy(info)
}

// recheckPolicy returns an error if the memory policy has become unsuitable since checkServer.
func recheckPolicy(ctx context.Context, server *redis.Client) error {
	text, err := server.Info(ctx, "memory").Result()
	if err != nil {
		return err
	}
	return checkEvictionPolicy(parseInfo(text))
}

func checkEvictionPolicy(info map[string]string) error {
	if info["maxmemory_policy"] == "noeviction" {
		return nil
	}
	return &store.Fault{Cause: store.CauseEviction, Err: fmt.Errorf("%w: when memory is full, the server evicts entries (maxmemory-policy %s), which would end sessions and make revoked tokens valid again: set maxmemory-policy noeviction, or use a dedicated server", ErrUnsuitable, info["maxmemory_policy"])}
}

// checkError distinguishes errors that an operator must fix from temporary errors.
func checkError(ctx context.Context, err error) error {
	if errors.As(err, new(*tls.CertificateVerificationError)) {
		return fmt.Errorf("%w: the server certificate is not issued by a trusted authority (tls_ca), or not for this host: %w", ErrUnsuitable, err)
	}
	for prefix, hint := range map[string]string{
		"WRONGPASS": "wrong username or password", "NOAUTH": "a password is required",
		"NOPERM":               "the user lacks permissions (docs/operate/redis.md)",
		"ERR invalid password": "the password is wrong", "ERR DB index": "the database number does not exist",
	} {
		if strings.HasPrefix(err.Error(), prefix) {
			return fmt.Errorf("%w: %s: %w", ErrUnsuitable, hint, err)
		}
	}
	return convertError(ctx, err)
}

func parseInfo(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok {
			info[name] = value
		}
	}
	return info
}

func versionAtLeast(version string, major, minor int) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	gotMajor, majorErr := strconv.Atoi(parts[0])
	gotMinor, minorErr := strconv.Atoi(parts[1])
	return majorErr == nil && minorErr == nil && (gotMajor > major || gotMajor == major && gotMinor >= minor)
}

const (
	probeEntry     = "trial"          // key of the entry that Probe writes
	probeStream    = "trial-changes"  // stream in which the entry is announced
	probeRetention = time.Second      // how long the announcement is retained
	probeSize      = 8 << 10          // size of the entry in bytes
	probeTTL       = 10 * time.Second // lifetime of the entry if it is not deleted
)

// Probe implements [store.Probe]. It adds an announced entry, deletes it, and checks that the memory policy still prevents
// eviction. In a cluster, it checks the master of the announced entries.
func (s *Store) Probe(ctx context.Context) error {
	add := &store.Call{Op: store.Add, Key: newStepID()}
	_, err := s.capacity.count(ctx) // for Size, even if there is no limit
	if err == nil {
		err = s.capacity.check(ctx, 1, nil)
	}
	if err == nil {
		err = s.executor.probeCall(ctx, add)
	}
	if err == nil {
		add.Op = store.Delete
		err = s.executor.probeCall(ctx, add)
	}
	if err != nil {
		return s.addMissingRights(ctx, err)
	}
	return s.connection.call(ctx, func(ctx context.Context) error { return s.connection.eachMaster(ctx, recheckPolicy) })
}

// addMissingRights adds a list of the missing rights to an error that was caused by missing rights.
func (s *Store) addMissingRights(ctx context.Context, err error) error {
	if store.CauseOf(err) == store.CausePermissions {
		if missing := s.missingRightsError(ctx); missing != nil {
			return &store.Fault{Cause: store.CausePermissions, Err: missing}
		}
	}
	return err
}

// ProbeSubscription tries to read announcements. Without them, everything else works, but each token requires a request to the
// store.
func (s *Store) ProbeSubscription(ctx context.Context) error {
	args := &redis.XReadArgs{Streams: []string{s.names.internalKey(probeStream, announcedTag), "0"}, Count: 1, Block: -1}
	err := s.connection.call(ctx, func(ctx context.Context) error { return s.connection.client.XRead(ctx, args).Err() })
	return s.addMissingRights(ctx, err)
}

// probeCall executes a call of [Store.Probe]. The call is announced in a separate stream.
func (s *executor) probeCall(ctx context.Context, c *store.Call) error {
	ctx, cancel := s.connection.withTimeout(ctx)
	defer cancel()
	needed := 0
	if c.StoresValue() {
		needed = 1
	}
	own := func(name string) string { return s.names.internalKey(name, announcedTag) }
	args := []any{
		milliseconds(stepRetention * s.connection.timeout), milliseconds(probeRetention), needed,
		c.Op.String(), make([]byte, probeSize), "", milliseconds(probeTTL), probeEntry,
	}
	_, _, err := s.invoke(ctx, []string{own(newStepID()), own(c.Key + ":" + probeEntry), own(probeStream)}, args, 1)
	return err
}

// missingRightsError returns an error that lists the rights that the user lacks; nil if none is missing.
func (s *Store) missingRightsError(ctx context.Context) error {
	key, stream := s.names.internalKey(probeEntry, announcedTag), s.names.internalKey(probeStream, announcedTag)
	var missing []string
	err := s.connection.call(ctx, func(ctx context.Context) error {
		pipe := s.connection.client.Pipeline()
		checks := s.queueRightChecks(ctx, pipe, key, stream)
		if _, err := pipe.Exec(ctx); err != nil && !isServerError(err) {
			return err
		}
		for _, c := range checks {
			switch err := c.command.Err(); {
			case err == nil || !isMissingRight(err):
			case strings.Contains(err.Error(), "key"):
				missing = append(missing, fmt.Sprintf("~%s* for %s", s.names.prefix, c.permission))
			default:
				missing = append(missing, "+"+c.permission)
			}
		}
		return nil
	})
	if err != nil || len(missing) == 0 {
		return err
	}
	return fmt.Errorf("%w: the user lacks permissions (docs/operate/redis.md): %s", ErrUnsuitable, strings.Join(missing, " "))
}

// A rightCheck is a harmless command and the right that it requires.
type rightCheck struct {
	permission string
	command    redis.Cmder
}

// queueRightChecks queues a command for each right that the store requires, except the rights for connecting.
func (s *Store) queueRightChecks(ctx context.Context, p redis.Pipeliner, key, stream string) []rightCheck {
	checks := []rightCheck{
		{"set", p.Set(ctx, key, "", probeRetention)},
		{"get", p.Get(ctx, key)},
		{"mget", p.MGet(ctx, key)},
		{"pexpire", p.PExpire(ctx, key, probeRetention)},
		{"pttl", p.PTTL(ctx, key)},
		{"del", p.Del(ctx, key)},
		{"xadd", p.XAdd(ctx, &redis.XAddArgs{Stream: stream, MaxLen: 1, Values: []string{"k", ""}})},
		{"xrange", p.XRangeN(ctx, stream, "-", "+", 1)},
		{"xread", p.XRead(ctx, &redis.XReadArgs{Streams: []string{stream, "0"}, Count: 1, Block: -1})},
		{"time", p.Time(ctx)},
		{"eval", p.Eval(ctx, "return 1", []string{key})},
		{"evalsha", p.EvalSha(ctx, strings.Repeat("0", 40), []string{key})},
		{"scan", p.Scan(ctx, 0, s.names.prefix, 1)},
		{"dbsize", p.DBSize(ctx)},
		{"info", p.Info(ctx, "server")},
	}
	if s.executor.minReplicas > 0 {
		checks = append(checks, rightCheck{"wait", p.Do(ctx, "WAIT", 0, 1)}, rightCheck{"script|load", p.ScriptLoad(ctx, "return 1")})
	}
	return checks
}

// isServerError reports whether err is an error response from the server.
func isServerError(err error) bool {
	_, ok := errors.AsType[redis.Error](err)
	return ok
}

// isMissingRight reports whether a missing right caused an error. For scripts, Redis 7 does not report which right is missing.
func isMissingRight(err error) bool {
	return hasErrorCode(err, "NOPERM") || isServerError(err) && strings.Contains(err.Error(), "The user executing the script can't")
}

// VolatilityReason returns why the server may lose data in a restart; "" if it cannot lose data or cannot be queried.
func (s *Store) VolatilityReason(ctx context.Context) (why string) {
	_ = s.connection.call(ctx, func(ctx context.Context) error { // ignore errors: other checks report them
		return s.connection.eachMaster(ctx, func(ctx context.Context, server *redis.Client) error {
			text, err := server.Info(ctx, "persistence").Result()
			if err != nil || parseInfo(text)["aof_enabled"] != "0" {
				return err
			}
			why = "Redis has appendonly no: a restart loses all changes since the last snapshot, if there is one (docs/operate/redis.md)"
			if settings, err := server.ConfigGet(ctx, "save").Result(); err == nil && settings["save"] == "" {
				why = "Redis has appendonly no and save \"\": a restart loses all state (docs/operate/redis.md)"
			}
			return nil
		})
	})
	return why
}

// ErrUnsuitable is returned for a server that must not be used, because it could lose or reject state.
var ErrUnsuitable = errors.New("this Redis server cannot be used")

// temporaryErrors are error codes of a server that has changed nothing but may accept the change later. Network errors are
// temporary as well.
var temporaryErrors = []string{
	"READONLY", "LOADING", "MASTERDOWN", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "MISCONF", "BUSY",
	"UNBLOCKED", "NOAUTH", "WRONGPASS", "UNKILLABLE",
}

// convertError converts an error of the Redis client to an error of [store.Store]. ctx is the caller's context.
func convertError(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case err == nil, errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrFull), errors.Is(err, ErrUnsuitable):
		return err // already converted
	case cause != nil && !errors.Is(cause, errTimeout): // the caller has canceled the call
		return cause
	case hasErrorCode(err, "OOM"):
		return fmt.Errorf("%w: Redis has reached maxmemory", store.ErrFull)
	case redis.HasErrorPrefix(err, "NEWER"):
		return errNewerVersion
	case isMissingRight(err):
		return &store.Fault{Cause: store.CausePermissions, Err: fmt.Errorf("the Redis server denied the operation: the user lacks permissions (docs/operate/redis.md): %w", err)}
	case !isTemporary(err):
		return fmt.Errorf("redis: %w", err)
	}
	return fmt.Errorf("%w: %s", store.ErrUnavailable, fmt.Sprint(err)) // not wrapped: it may be a context error, but not the caller's
}

// isTemporary reports whether an error is temporary, so a retry may succeed.
func isTemporary(err error) bool {
	if _, ok := errors.AsType[redis.Error](err); !ok {
		return true
	}
	for _, prefix := range temporaryErrors {
		if hasErrorCode(err, prefix) {
			return true
		}
	}
	return redis.HasErrorPrefix(err, "max number of clients")
}

// hasErrorCode reports whether an error is a response from the server that begins with kind. Before Redis 7.0, the error of a
// command in a script is embedded in the text of another error.
func hasErrorCode(err error, kind string) bool {
	return redis.HasErrorPrefix(err, kind) ||
		redis.HasErrorPrefix(err, "Error running script") && strings.Contains(err.Error(), ": -"+kind+" ")
}

// The Redis client returns errors and also logs them. Its log messages are therefore logged at debug level.
func init() { redis.SetLogger(debugLogger{}) }

type debugLogger struct{}

// Printf implements the client's logger.
func (debugLogger) Printf(ctx context.Context, format string, v ...any) {
	if slog.Default().Enabled(ctx, slog.LevelDebug) {
		slog.DebugContext(ctx, "redis: "+fmt.Sprintf(format, v...))
	}
}
