package redisstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

var script = redis.NewScript(stepLua)

// run runs the script, and waits for replicas if it changed something.
func (s *Store) run(ctx context.Context, keys []string, args []any) ([]any, error) {
	if s.replicas > 0 {
		return s.runReplicated(ctx, keys, args)
	}
	reply, err := script.EvalSha(ctx, s.client, keys, args...).Slice()
	if redis.HasErrorPrefix(err, "NOSCRIPT") { // the server has restarted
		reply, err = script.Eval(ctx, s.client, keys, args...).Slice()
	}
	return reply, err
}

// errTooFewReplicas is of an answer by a server that may have been replaced, or of a change that
// may be lost with it.
var errTooFewReplicas = errors.New("too few replicas confirm the step")

// runReplicated sends WAIT behind the script, on the same connection: that is what WAIT is
// about.
func (s *Store) runReplicated(ctx context.Context, keys []string, args []any) (reply []any, err error) {
	for range retries {
		var master *redis.Client
		if master, err = s.master(ctx, keys[0]); err != nil {
			return nil, err
		}
		pipe := master.Pipeline()
		ran := script.EvalSha(ctx, pipe, keys, args...)
		waited := pipe.Do(ctx, "WAIT", s.replicas, milliseconds(s.timeout/4)) // less than the client waits for it
		_, err = pipe.Exec(ctx)
		switch {
		case redis.HasErrorPrefix(ran.Err(), "NOSCRIPT"):
			err = script.Load(ctx, master).Err()
		case redis.HasErrorPrefix(ran.Err(), "MOVED"), redis.HasErrorPrefix(ran.Err(), "ASK"):
			s.client.(*redis.ClusterClient).ReloadState(ctx)
		case err != nil:
			return nil, err
		default:
			return ran.Val().([]any), s.enough(waited)
		}
	}
	return nil, errors.Join(err, errTooFewReplicas)
}

// master returns the server of a key.
func (s *Store) master(ctx context.Context, key string) (*redis.Client, error) {
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		return cluster.MasterForKey(ctx, key)
	}
	return s.client.(*redis.Client), nil
}

// enough checks how many replicas have what the step wrote.
func (s *Store) enough(waited *redis.Cmd) error {
	n, err := waited.Int()
	if err != nil || n >= s.replicas {
		return err
	}
	return fmt.Errorf("%w: %d of %d after %v", errTooFewReplicas, n, s.replicas, s.timeout/4)
}

// bound limits the time of a call. It is the caller's own time that is over, if the cause is
// not ours.
func (s *Store) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, s.timeout, errTimeout)
}

var errTimeout = errors.New("no answer in time")
