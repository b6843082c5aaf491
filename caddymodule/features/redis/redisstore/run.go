package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

var script = redis.NewScript(stepLua)

// A runner runs the script.
type runner struct {
	connection *connection
	replicas   int // to wait for
	clock      *clock
}

// invoke runs the script for a number of calls. It returns which of them failed, counting from
// one, or else what each found.
func (r *runner) invoke(ctx context.Context, keys []string, args []any, calls int) (failed int, found []any, err error) {
	sent := time.Now()
	reply, err := r.run(ctx, keys, args)
	if err != nil {
		return 0, nil, r.connection.failed(ctx, err)
	}
	h, err := readHeader(reply, calls)
	if err != nil {
		return 0, nil, err
	}
	r.clock.hear(h.server, sent)
	return h.failed, reply[headerLength:], nil
}

// run runs the script, and waits for replicas if it wrote something.
func (r *runner) run(ctx context.Context, keys []string, args []any) ([]any, error) {
	if r.replicas > 0 {
		return r.runReplicated(ctx, keys, args)
	}
	reply, err := script.EvalSha(ctx, r.connection.client, keys, args...).Slice()
	if redis.HasErrorPrefix(err, "NOSCRIPT") { // the server has restarted
		reply, err = script.Eval(ctx, r.connection.client, keys, args...).Slice()
	}
	return reply, err
}

// errTooFewReplicas is of a change that may be lost with the server.
var errTooFewReplicas = errors.New("too few replicas have the change")

// runReplicated sends WAIT behind the script, on the same connection: that is what WAIT is
// about.
func (r *runner) runReplicated(ctx context.Context, keys []string, args []any) (reply []any, err error) {
	for range retries {
		var master *redis.Client
		if master, err = r.connection.master(ctx, keys[0]); err != nil {
			return nil, err
		}
		pipe := master.Pipeline()
		ran := script.EvalSha(ctx, pipe, keys, args...)
		waited := pipe.Do(ctx, "WAIT", r.replicas, milliseconds(r.connection.timeout/4)) // less than the client waits for it
		_, err = pipe.Exec(ctx)
		switch {
		case redis.HasErrorPrefix(ran.Err(), "NOSCRIPT"):
			err = script.Load(ctx, master).Err()
		case redis.HasErrorPrefix(ran.Err(), "MOVED"), redis.HasErrorPrefix(ran.Err(), "ASK"):
			r.connection.client.(*redis.ClusterClient).ReloadState(ctx)
		case err != nil:
			return nil, err
		default:
			return ran.Val().([]any), r.enough(waited, ran.Val().([]any))
		}
	}
	return nil, errors.Join(err, errTooFewReplicas)
}

// enough checks how many replicas have what was written.
func (r *runner) enough(waited *redis.Cmd, reply []any) error {
	n, err := waited.Int()
	if err != nil || n >= r.replicas {
		return err
	}
	if len(reply) >= headerLength && reply[headerLength-1] == int64(0) { // nothing was written
		return nil
	}
	return fmt.Errorf("%w: %d of %d after %v", errTooFewReplicas, n, r.replicas, r.connection.timeout/4)
}

// A header is the beginning of the script's answer.
type header struct {
	failed int       // call that failed, counting from one; 0: none
	server time.Time // its clock
}

// headerLength is how many elements of the script's answer are its header. The last of them
// says whether something was written.
const headerLength = 4

func readHeader(reply []any, calls int) (h header, err error) {
	if len(reply) < headerLength {
		return h, fmt.Errorf("the script answered %d elements", len(reply))
	}
	var numbers [headerLength]int64
	for i := range numbers {
		n, ok := reply[i].(int64)
		if !ok {
			return h, fmt.Errorf("the script answered %T", reply[i])
		}
		numbers[i] = n
	}
	h = header{int(numbers[0]), time.Unix(numbers[1], numbers[2]*1000)}
	if h.failed < 0 || h.failed > calls || h.failed == 0 && len(reply) != headerLength+calls {
		return h, fmt.Errorf("the script answered %d elements, and that call %d of %d failed", len(reply), h.failed, calls)
	}
	return h, nil
}
