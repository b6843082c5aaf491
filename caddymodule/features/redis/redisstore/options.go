package redisstore

import (
	"cmp"
	"crypto/tls"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	// defaultAddress is where a server listens by default.
	defaultAddress = "localhost:6379"

	// defaultTimeout is how long a call takes at most by default.
	defaultTimeout = 2 * time.Second

	// defaultKeyPrefix is before the names of all keys by default.
	defaultKeyPrefix = "fhir:"
)

// Options say what a [Store] connects to. All zero is a server without password on this host.
type Options struct {
	Address  string   // host:port, or the path of a Unix socket; default: DefaultAddress
	Sentinel Sentinel // names the server instead
	Cluster  []string // nodes of a cluster, host:port, instead

	Username string      // of an ACL (Redis 6); default: the server's default user
	Password string      // default: none
	Database int         // number; a cluster has only 0
	TLS      *tls.Config // default: without

	PoolSize     int           // connections at most; default: 10 for each CPU
	Timeout      time.Duration // of a call with its repetitions; default: DefaultTimeout
	KeyPrefix    string        // default: DefaultKeyPrefix
	WaitReplicas int           // that must have a change before it counts; default: 0
	MaxEntries   int           // keys in the database at most, checked each second; default: any number
	Followed     []string      // kinds of keys whose changes are announced
	Unbounded    []string      // kinds of keys that are stored even if the server is full
}

// Sentinel says which Sentinel processes tell where the server is.
type Sentinel struct {
	Master   string   // the name by which they know it; default: there is no Sentinel
	Nodes    []string // host:port
	Username string   // at the Sentinels; default: their default user
	Password string   // at the Sentinels; default: none
}

// connection connects on first use.
func (o *Options) connection() *connection {
	c := &connection{timeout: o.timeout()}
	switch {
	case o.Sentinel.Master != "":
		c.sentinels = o.sentinels()
		options := o.single()
		options.Addr, options.Dialer, options.TLSConfig = o.Sentinel.Master, c.sentinels.connect, nil
		c.client = redis.NewClient(options)
	case len(o.Cluster) > 0:
		c.client = redis.NewClusterClient(o.cluster())
	default:
		c.client = redis.NewClient(o.single())
	}
	return c
}

// A call may be sent twice in its time, if the first attempt is not answered at all.
func (o *Options) attempt() time.Duration { return o.timeout() / 2 }

func (o *Options) timeout() time.Duration { return cmp.Or(o.Timeout, defaultTimeout) }

const (
	retries  = 3 // after failures that are noticed at once
	minPause = 8 * time.Millisecond
	maxPause = 256 * time.Millisecond
)

func (o *Options) single() *redis.Options {
	address := cmp.Or(o.Address, defaultAddress)
	network := "tcp"
	if strings.HasPrefix(address, "/") {
		network = "unix"
	}
	return &redis.Options{
		Network: network, Addr: address, Username: o.Username, Password: o.Password, DB: o.Database, TLSConfig: o.TLS,
		PoolSize: o.PoolSize, DialTimeout: o.attempt(), ReadTimeout: o.attempt(), WriteTimeout: o.attempt(),
		MaxRetries: retries, MinRetryBackoff: minPause, MaxRetryBackoff: maxPause, DialerRetries: 1,
		ContextTimeoutEnabled: true, Protocol: 2, DisableIdentity: true, MaintNotificationsConfig: noNotifications(),
	}
}

func (o *Options) sentinels() *sentinels {
	s := &sentinels{name: o.Sentinel.Master, dial: dialer{o.attempt(), o.TLS}}
	for _, node := range o.Sentinel.Nodes {
		options := o.single()
		options.Network, options.Addr, options.DB, options.PoolSize, options.MaxRetries = "tcp", node, 0, 3, 1
		options.Username, options.Password = o.Sentinel.Username, o.Sentinel.Password
		s.nodes = append(s.nodes, redis.NewSentinelClient(options))
	}
	return s
}

func (o *Options) cluster() *redis.ClusterOptions {
	return &redis.ClusterOptions{
		Addrs: o.Cluster, Username: o.Username, Password: o.Password, TLSConfig: o.TLS,
		PoolSize: o.PoolSize, DialTimeout: o.attempt(), ReadTimeout: o.attempt(), WriteTimeout: o.attempt(),
		MaxRedirects: retries, MinRetryBackoff: minPause, MaxRetryBackoff: maxPause, DialerRetries: 1,
		ContextTimeoutEnabled: true, Protocol: 2, DisableIdentity: true, MaintNotificationsConfig: noNotifications(),
	}
}

// noNotifications spares a new connection a question that only Redis Enterprise answers.
// Likewise, DisableIdentity spares it CLIENT SETINFO, which servers before 7.2 do not know.
func noNotifications() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}
