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

// check asks all masters.
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
	version := info["redis_version"] // Valkey's too: of the Redis that it is compatible with
	switch {
	case !atLeast(version, 6, 2):
		return fmt.Errorf("%w: it has version %s: 6.2 or newer is needed", ErrUnsuitable, version)
	case info["role"] == "slave":
		return fmt.Errorf("%w: it is a replica of %s, which takes no changes: name that one as the address, or use sentinel", ErrUnsuitable, info["master_host"])
	}
	return policy(info)
}

// checkPolicy asks a server that was checked before: its policy may have been changed.
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

// checkFailure separates what somebody must set right from what passes.
func checkFailure(ctx context.Context, err error) error {
	if errors.As(err, new(*tls.CertificateVerificationError)) {
		return fmt.Errorf("%w: its certificate is not by an authority that is trusted (tls_ca), or not for the name or address by which it was reached: %w", ErrUnsuitable, err)
	}
	for prefix, hint := range map[string]string{
		"WRONGPASS": "username and password are wrong", "NOAUTH": "it needs a password",
		"NOPERM":               "the user lacks rights (docs/operate/replicas.md)",
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
	trialKey    = "trial"          // what a trial writes
	trialStream = "trial-changes"  // where it announces that
	trialMemory = time.Second      // for how long that stays there
	trialSize   = 8 << 10          // of the entry
	trialLives  = 10 * time.Second // if it is not deleted
)

// Try is for [store.Try]: the server takes a new entry, announces it, and deletes it; and it still drops nothing that is in
// use. In a cluster, this is the master of the entries that are announced.
func (s *Store) Try(ctx context.Context) error {
	add := &store.Call{Op: store.Add, Key: newStepID()}
	_, err := s.room.count(ctx) // for Size, also if there is no limit
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

// explainRight names the rights that the user lacks, if that is why something failed.
func (s *Store) explainRight(ctx context.Context, err error) error {
	if store.CauseOf(err) == store.CauseRights {
		if missing := s.lacks(ctx); missing != nil {
			return &store.Fault{Cause: store.CauseRights, Err: missing}
		}
	}
	return err
}

// TryListening tries to read announcements. Without that, all else works, and each token is asked for.
func (s *Store) TryListening(ctx context.Context) error {
	args := &redis.XReadArgs{Streams: []string{s.names.own(trialStream, followedTag), "0"}, Count: 1, Block: -1}
	err := s.connection.asked(ctx, func(ctx context.Context) error { return s.connection.client.XRead(ctx, args).Err() })
	return s.explainRight(ctx, err)
}

// try makes a call of a trial, which is announced in a stream of its own.
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

// lacks names the rights that the user lacks, as an error; nil if it has all.
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
	return fmt.Errorf("%w: the user lacks rights (docs/operate/replicas.md): %s", ErrUnsuitable, strings.Join(missing, " "))
}

// A request is a command that does no harm, and the right that it takes.
type request struct {
	right   string
	command redis.Cmder
}

// everything asks for all that the store uses, beside what makes a connection.
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

// isAnswer reports whether a server answered with an error.
func isAnswer(err error) bool {
	_, answered := errors.AsType[redis.Error](err)
	return answered
}

// isRight reports whether a server refuses for want of a right. In a script, Redis 7 does not say which.
func isRight(err error) bool {
	return answers(err, "NOPERM") || isAnswer(err) && strings.Contains(err.Error(), "The user executing the script can't")
}

// Volatile says why the server does not keep everything over its restart; empty if it does, or does not tell.
func (s *Store) Volatile(ctx context.Context) (why string) {
	_ = s.connection.asked(ctx, func(ctx context.Context) error { // who cannot be asked is checked anyway
		return s.connection.eachMaster(ctx, func(ctx context.Context, server *redis.Client) error {
			text, err := server.Info(ctx, "persistence").Result()
			if err != nil || parseInfo(text)["aof_enabled"] != "0" {
				return err
			}
			why = "Redis has appendonly no: it loses what it stored since its last snapshot, if it makes any (docs/operate/replicas.md)"
			if saved, err := server.ConfigGet(ctx, "save").Result(); err == nil && saved["save"] == "" {
				why = "Redis has appendonly no, and save \"\": it keeps nothing (docs/operate/replicas.md)"
			}
			return nil
		})
	})
	return why
}

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
		return &store.Fault{Cause: store.CauseRights, Err: fmt.Errorf("the store refuses it to the user, who lacks rights (docs/operate/replicas.md): %w", err)}
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
