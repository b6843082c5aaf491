package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

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
	ctx, cancel := s.runner.connection.bound(ctx)
	defer cancel()
	room := 0
	if c.Stores() {
		room = 1
	}
	own := func(name string) string { return s.names.own(name, followedTag) }
	args := []any{
		milliseconds(stepMemory * s.runner.connection.timeout), milliseconds(trialMemory), room,
		c.Op.String(), make([]byte, trialSize), "", milliseconds(trialLives), trialKey,
	}
	_, _, err := s.runner.invoke(ctx, []string{own(newStepID()), own(c.Key + ":" + trialKey), own(trialStream)}, args, 1)
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
	return fmt.Errorf("%w: the user lacks rights (docs/replicas.md): %s", ErrUnsuitable, strings.Join(missing, " "))
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
	if s.steps.runner.replicas > 0 {
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
			why = "Redis has appendonly no: it loses what it stored since its last snapshot, if it makes any (docs/replicas.md)"
			if saved, err := server.ConfigGet(ctx, "save").Result(); err == nil && saved["save"] == "" {
				why = "Redis has appendonly no, and save \"\": it keeps nothing (docs/replicas.md)"
			}
			return nil
		})
	})
	return why
}
