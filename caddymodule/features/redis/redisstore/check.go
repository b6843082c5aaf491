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
	ctx, cancel := c.bound(ctx)
	defer cancel()
	return c.failed(ctx, c.eachMaster(ctx, checkServer))
}

func checkServer(ctx context.Context, server *redis.Client) error {
	text, err := server.Info(ctx, "everything").Result()
	if err != nil {
		return checkFailure(ctx, err)
	}
	info := parseInfo(text)
	version := info["redis_version"] // for Valkey, the version of the compatible Redis
	switch {
	case !atLeast(version, 6, 2):
		return fmt.Errorf("%w: it has version %s: 6.2 or newer is needed", ErrUnsuitable, version)
	case info["role"] == "slave":
		return fmt.Errorf("%w: it is a replica of %s, which takes no changes: name that one as the address, or use sentinel", ErrUnsuitable, info["master_host"])
	}
	return policy(info)
}

// checkPolicy checks the memory policy again, which may have changed since checkServer.
func checkPolicy(ctx context.Context, server *redis.Client) error {
	text, err := server.Info(ctx, "memory").Result()
	if err != nil {
		return err
	}
	return policy(parseInfo(text))
}

func policy(info map[string]string) error {
	if info["maxmemory_policy"] == "noeviction" {
		return nil
	}
	return &store.Fault{Cause: store.CauseEviction, Err: fmt.Errorf("%w: when its memory is full, it drops entries that are in use (maxmemory-policy %s): sessions would end, and revoked tokens would be valid again; set maxmemory-policy noeviction, or use a server of its own", ErrUnsuitable, info["maxmemory_policy"])}
}

// checkFailure separates errors that an operator must fix from temporary ones.
func checkFailure(ctx context.Context, err error) error {
	if errors.As(err, new(*tls.CertificateVerificationError)) {
		return fmt.Errorf("%w: its certificate is not by an authority that is trusted (tls_ca), or not for the name or address by which it was reached: %w", ErrUnsuitable, err)
	}
	for prefix, hint := range map[string]string{
		"WRONGPASS": "username and password are wrong", "NOAUTH": "it needs a password",
		"NOPERM":               "the user lacks rights (docs/operate/redis.md)",
		"ERR invalid password": "the password is wrong", "ERR DB index": "it has no database of this number",
	} {
		if strings.HasPrefix(err.Error(), prefix) {
			return fmt.Errorf("%w: %s: %w", ErrUnsuitable, hint, err)
		}
	}
	return failure(ctx, err)
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

func atLeast(version string, major, minor int) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	gotMajor, majorErr := strconv.Atoi(parts[0])
	gotMinor, minorErr := strconv.Atoi(parts[1])
	return majorErr == nil && minorErr == nil && (gotMajor > major || gotMajor == major && gotMinor >= minor)
}

const (
	trialKey    = "trial"          // key of the entry that Probe writes
	trialStream = "trial-changes"  // the stream that announces the entry
	trialMemory = time.Second      // retention of the announcement
	trialSize   = 8 << 10          // size of the entry
	trialLives  = 10 * time.Second // lifetime of the entry if it is not deleted
)

// Probe implements [store.Probe]: it adds an announced entry, deletes it, and checks that the memory policy still evicts
// nothing. In a cluster, the server is the master of the announced entries.
func (s *Store) Probe(ctx context.Context) error {
	add := &store.Call{Op: store.Add, Key: newStepID()}
	_, err := s.room.count(ctx) // for Size, even without a limit
	if err == nil {
		err = s.room.check(ctx, 1, nil)
	}
	if err == nil {
		err = s.steps.try(ctx, add)
	}
	if err == nil {
		add.Op = store.Delete
		err = s.steps.try(ctx, add)
	}
	if err != nil {
		return s.explainRight(ctx, err)
	}
	return s.connection.asked(ctx, func(ctx context.Context) error { return s.connection.eachMaster(ctx, checkPolicy) })
}

// explainRight adds the missing rights to an error caused by missing rights.
func (s *Store) explainRight(ctx context.Context, err error) error {
	if store.CauseOf(err) == store.CauseRights {
		if missing := s.lacks(ctx); missing != nil {
			return &store.Fault{Cause: store.CauseRights, Err: missing}
		}
	}
	return err
}

// ProbeSubscription tries to read announcements. Everything else works without them, but each token then needs a request to the
// store.
func (s *Store) ProbeSubscription(ctx context.Context) error {
	args := &redis.XReadArgs{Streams: []string{s.names.own(trialStream, followedTag), "0"}, Count: 1, Block: -1}
	err := s.connection.asked(ctx, func(ctx context.Context) error { return s.connection.client.XRead(ctx, args).Err() })
	return s.explainRight(ctx, err)
}

// try executes a call of [Store.Probe], announced in a separate stream.
func (s *stepper) try(ctx context.Context, c *store.Call) error {
	ctx, cancel := s.connection.bound(ctx)
	defer cancel()
	room := 0
	if c.Stores() {
		room = 1
	}
	own := func(name string) string { return s.names.own(name, followedTag) }
	args := []any{
		milliseconds(stepMemory * s.connection.timeout), milliseconds(trialMemory), room,
		c.Op.String(), make([]byte, trialSize), "", milliseconds(trialLives), trialKey,
	}
	_, _, err := s.invoke(ctx, []string{own(newStepID()), own(c.Key + ":" + trialKey), own(trialStream)}, args, 1)
	return err
}

// lacks returns an error that lists the user's missing rights; nil if none is missing.
func (s *Store) lacks(ctx context.Context) error {
	key, stream := s.names.own(trialKey, followedTag), s.names.own(trialStream, followedTag)
	var missing []string
	err := s.connection.asked(ctx, func(ctx context.Context) error {
		pipe := s.connection.client.Pipeline()
		asked := s.everything(ctx, pipe, key, stream)
		if _, err := pipe.Exec(ctx); err != nil && !isAnswer(err) {
			return err
		}
		for _, c := range asked {
			switch err := c.command.Err(); {
			case err == nil || !isRight(err):
			case strings.Contains(err.Error(), "key"):
				missing = append(missing, fmt.Sprintf("~%s* for %s", s.names.prefix, c.right))
			default:
				missing = append(missing, "+"+c.right)
			}
		}
		return nil
	})
	if err != nil || len(missing) == 0 {
		return err
	}
	return fmt.Errorf("%w: the user lacks rights (docs/operate/redis.md): %s", ErrUnsuitable, strings.Join(missing, " "))
}

// A request is a harmless command and the right it needs.
type request struct {
	right   string
	command redis.Cmder
}

// everything queues a command for every right that the store needs, except those for connecting.
func (s *Store) everything(ctx context.Context, p redis.Pipeliner, key, stream string) []request {
	asked := []request{
		{"set", p.Set(ctx, key, "", trialMemory)},
		{"get", p.Get(ctx, key)},
		{"mget", p.MGet(ctx, key)},
		{"pexpire", p.PExpire(ctx, key, trialMemory)},
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
	if s.steps.replicas > 0 {
		asked = append(asked, request{"wait", p.Do(ctx, "WAIT", 0, 1)}, request{"script|load", p.ScriptLoad(ctx, "return 1")})
	}
	return asked
}

// isAnswer reports whether err is the server's response.
func isAnswer(err error) bool {
	_, answered := errors.AsType[redis.Error](err)
	return answered
}

// isRight reports whether a right is missing. For scripts, Redis 7 does not report which one.
func isRight(err error) bool {
	return answers(err, "NOPERM") || isAnswer(err) && strings.Contains(err.Error(), "The user executing the script can't")
}

// VolatilityReason returns why the server may lose data in a restart; "" if it does not or cannot be queried.
func (s *Store) VolatilityReason(ctx context.Context) (why string) {
	_ = s.connection.asked(ctx, func(ctx context.Context) error { // ignore errors: other checks report them
		return s.connection.eachMaster(ctx, func(ctx context.Context, server *redis.Client) error {
			text, err := server.Info(ctx, "persistence").Result()
			if err != nil || parseInfo(text)["aof_enabled"] != "0" {
				return err
			}
			why = "Redis has appendonly no: it loses what it stored since its last snapshot, if it makes any (docs/operate/redis.md)"
			if saved, err := server.ConfigGet(ctx, "save").Result(); err == nil && saved["save"] == "" {
				why = "Redis has appendonly no, and save \"\": it keeps nothing (docs/operate/redis.md)"
			}
			return nil
		})
	})
	return why
}

// ErrUnsuitable is the error of a server that must not be used because it could lose or
// reject state.
var ErrUnsuitable = errors.New("this Redis server cannot be used")

// refusals are the errors of a server that has made no change but may accept it later. Network
// errors are temporary, too.
var refusals = []string{
	"READONLY", "LOADING", "MASTERDOWN", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "MISCONF", "BUSY",
	"UNBLOCKED", "NOAUTH", "WRONGPASS", "UNKILLABLE",
}

// failure converts an error of the Redis client for a caller with ctx.
func failure(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case err == nil, errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrFull), errors.Is(err, ErrUnsuitable):
		return err // already converted
	case cause != nil && !errors.Is(cause, errTimeout): // the caller has stopped waiting
		return cause
	case answers(err, "OOM"):
		return fmt.Errorf("%w: Redis is at its maxmemory", store.ErrFull)
	case redis.HasErrorPrefix(err, "NEWER"):
		return errNewer
	case isRight(err):
		return &store.Fault{Cause: store.CauseRights, Err: fmt.Errorf("the store refuses it to the user, who lacks rights (docs/operate/redis.md): %w", err)}
	case !isRefusal(err):
		return fmt.Errorf("redis: %w", err)
	}
	return fmt.Errorf("%w: %s", store.ErrUnavailable, fmt.Sprint(err)) // not wrapped: it may be a context error, but not the caller's
}

// isRefusal reports whether an error is temporary: a retry without a change of the program may succeed.
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

// answers reports whether the server's response is an error with the prefix kind. Before Redis
// 7.0, the error of a command in a script is part of another error's text.
func answers(err error, kind string) bool {
	return redis.HasErrorPrefix(err, kind) ||
		redis.HasErrorPrefix(err, "Error running script") && strings.Contains(err.Error(), ": -"+kind+" ")
}

// The client also logs the errors that it returns: they are logged at debug level.
func init() { redis.SetLogger(debugLogger{}) }

type debugLogger struct{}

// Printf implements the client's logger.
func (debugLogger) Printf(ctx context.Context, format string, v ...any) {
	if slog.Default().Enabled(ctx, slog.LevelDebug) {
		slog.DebugContext(ctx, "redis: "+fmt.Sprintf(format, v...))
	}
}
