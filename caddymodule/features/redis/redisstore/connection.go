package redisstore

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// connection is what leads to the servers.
type connection struct {
	client    redis.UniversalClient
	sentinels *sentinels // nil: none
	timeout   time.Duration
}

func (c *connection) close() error {
	if c.sentinels == nil {
		return c.client.Close()
	}
	return errors.Join(c.sentinels.close(), c.client.Close())
}

// bound limits the time of a call. It is the caller's own time that is over, if the cause is
// not ours.
func (c *connection) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, c.timeout, errTimeout)
}

var errTimeout = errors.New("no answer in time")

// asked makes one request in bounded time.
func (c *connection) asked(ctx context.Context, request func(context.Context) error) error {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	err := request(ctx)
	if errors.Is(err, redis.Nil) {
		err = nil // one of a pipeline
	}
	return c.failed(ctx, err)
}

// failed says what an error of the client means for a caller with a context. If the server is not
// available, the Sentinels are asked whether it is still the master.
func (c *connection) failed(ctx context.Context, err error) error {
	err = failure(ctx, err)
	if errors.Is(err, store.ErrUnavailable) {
		c.verify()
	}
	return err
}

// verify has the Sentinels asked, if there are any, and does not wait for that.
func (c *connection) verify() {
	if c.sentinels != nil {
		c.sentinels.verify()
	}
}

// master returns the server of a key.
func (c *connection) master(ctx context.Context, key string) (*redis.Client, error) {
	if cluster, ok := c.client.(*redis.ClusterClient); ok {
		return cluster.MasterForKey(ctx, key)
	}
	return c.client.(*redis.Client), nil
}

// eachMaster calls a function with each master, in a cluster with all at once.
func (c *connection) eachMaster(ctx context.Context, call func(context.Context, *redis.Client) error) error {
	if cluster, ok := c.client.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, call)
	}
	return call(ctx, c.client.(*redis.Client))
}
