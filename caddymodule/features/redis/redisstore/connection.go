package redisstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// connection sends calls to the servers. Their addresses are configured or found through Sentinels.
type connection struct {
	client    redis.UniversalClient
	sentinels *sentinels // nil without Sentinels
	timeout   time.Duration
}

func (c *connection) close() error {
	if c.sentinels == nil {
		return c.client.Close()
	}
	return errors.Join(c.sentinels.close(), c.client.Close())
}

// withTimeout limits the duration of a call. The cause errTimeout distinguishes this limit from the caller's deadline.
func (c *connection) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, c.timeout, errTimeout)
}

var errTimeout = errors.New("no response from Redis within the timeout")

// call calls request within the timeout, and converts its error.
func (c *connection) call(ctx context.Context, request func(context.Context) error) error {
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	err := request(ctx)
	if errors.Is(err, redis.Nil) {
		err = nil // a command of a pipeline found no value
	}
	return c.handleError(ctx, err)
}

// handleError converts an error of the Redis client. If the server is unavailable, it also queries the Sentinels for a new
// master in the background.
func (c *connection) handleError(ctx context.Context, err error) error {
	err = convertError(ctx, err)
	if errors.Is(err, store.ErrUnavailable) {
		c.refreshMaster()
	}
	return err
}

// refreshMaster queries the Sentinels, if there are any, in the background.
func (c *connection) refreshMaster() {
	if c.sentinels != nil {
		c.sentinels.refresh()
	}
}

// master returns the client of the server that stores a key.
func (c *connection) master(ctx context.Context, key string) (*redis.Client, error) {
	if cluster, ok := c.client.(*redis.ClusterClient); ok {
		return cluster.MasterForKey(ctx, key)
	}
	return c.client.(*redis.Client), nil
}

// eachMaster calls a function for each master. In a cluster, the calls are concurrent.
func (c *connection) eachMaster(ctx context.Context, call func(context.Context, *redis.Client) error) error {
	if cluster, ok := c.client.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, call)
	}
	return call(ctx, c.client.(*redis.Client))
}

const (
	// defaultAddress is the default of Options.Address.
	defaultAddress = "localhost:6379"

	// defaultTimeout is the default of Options.Timeout.
	defaultTimeout = 2 * time.Second

	// defaultKeyPrefix is the default of Options.KeyPrefix.
	defaultKeyPrefix = "fhir:"
)

// Options configure a [Store]. The zero value selects a local server without a password.
type Options struct {
	Address  string   // host:port or path of a Unix socket; default: localhost:6379
	Sentinel Sentinel // Sentinels through which the server is found, instead of Address
	Cluster  []string // nodes of a cluster (host:port), instead of Address

	Username string      // ACL user (Redis 6); default: the server's default user
	Password string      // password; default: none
	Database int         // database number; must be 0 in a cluster
	TLS      *tls.Config // TLS configuration; default: no TLS

	Timeout         time.Duration // time limit of a call with its retries; default: 2 s
	KeyPrefix       string        // prefix of all keys; default: fhir:
	WaitReplicas    int           // number of replicas that must confirm a change; default: 0
	MaxEntries      int           // maximum number of keys in the database, counted every second; default: no limit
	SubscribedKinds []string      // kinds of keys that are announced when they change
	UnboundedKinds  []string      // kinds of keys that a full server still stores
}

// Sentinel configures the Sentinel processes through which the server is found.
type Sentinel struct {
	Master   string   // name of the master; default: no Sentinel
	Nodes    []string // addresses (host:port) of the Sentinels
	Username string   // user at the Sentinels; default: their default user
	Password string   // password at the Sentinels; default: none
}

// newConnection returns a connection with the options. It connects on first use.
func (o *Options) newConnection() *connection {
	c := &connection{timeout: o.timeout()}
	switch {
	case o.Sentinel.Master != "":
		c.sentinels = o.newSentinels()
		options := o.clientOptions()
		options.Addr, options.Dialer, options.TLSConfig = o.Sentinel.Master, c.sentinels.connect, nil
		c.client = redis.NewClient(options)
	case len(o.Cluster) > 0:
		c.client = redis.NewClusterClient(o.clusterOptions())
	default:
		c.client = redis.NewClient(o.clientOptions())
	}
	return c
}

// attemptTimeout returns half of the timeout, so that a command without a response can be sent a second time.
func (o *Options) attemptTimeout() time.Duration { return o.timeout() / 2 }

func (o *Options) timeout() time.Duration { return cmp.Or(o.Timeout, defaultTimeout) }

const (
	maxRetries = 3 // retries if attempts fail immediately
	minBackoff = 8 * time.Millisecond
	maxBackoff = 256 * time.Millisecond
)

func (o *Options) clientOptions() *redis.Options {
	address := cmp.Or(o.Address, defaultAddress)
	network := "tcp"
	if strings.HasPrefix(address, "/") {
		network = "unix"
	}
	return &redis.Options{
		Network: network, Addr: address, Username: o.Username, Password: o.Password, DB: o.Database, TLSConfig: o.TLS,
		DialTimeout: o.attemptTimeout(), ReadTimeout: o.attemptTimeout(), WriteTimeout: o.attemptTimeout(),
		MaxRetries: maxRetries, MinRetryBackoff: minBackoff, MaxRetryBackoff: maxBackoff, DialerRetries: 1,
		ContextTimeoutEnabled: true, Protocol: 2, DisableIdentity: true, MaintNotificationsConfig: withoutNotifications(),
	}
}

func (o *Options) newSentinels() *sentinels {
	s := &sentinels{masterName: o.Sentinel.Master, dial: dialer{o.attemptTimeout(), o.TLS}}
	for _, node := range o.Sentinel.Nodes {
		options := o.clientOptions()
		options.Network, options.Addr, options.DB, options.PoolSize, options.MaxRetries = "tcp", node, 0, 3, 1
		options.Username, options.Password = o.Sentinel.Username, o.Sentinel.Password
		s.nodes = append(s.nodes, redis.NewSentinelClient(options))
	}
	return s
}

func (o *Options) clusterOptions() *redis.ClusterOptions {
	return &redis.ClusterOptions{
		Addrs: o.Cluster, Username: o.Username, Password: o.Password, TLSConfig: o.TLS,
		DialTimeout: o.attemptTimeout(), ReadTimeout: o.attemptTimeout(), WriteTimeout: o.attemptTimeout(),
		MaxRedirects: maxRetries, MinRetryBackoff: minBackoff, MaxRetryBackoff: maxBackoff, DialerRetries: 1,
		ContextTimeoutEnabled: true, Protocol: 2, DisableIdentity: true, MaintNotificationsConfig: withoutNotifications(),
	}
}

// withoutNotifications disables a command on each new connection that only Redis Enterprise supports. Likewise, DisableIdentity
// disables CLIENT SETINFO, which servers before 7.2 do not support.
func withoutNotifications() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// sentinels find the master. All Sentinels are queried, because a Sentinel that is isolated with an old master still reports
// that master. If they disagree, the highest configuration epoch wins, because it belongs to the latest failover.
type sentinels struct {
	masterName  string // name under which the Sentinels monitor the master
	nodes       []*redis.SentinelClient
	dial        dialer
	connections connSet

	mu      sync.Mutex
	current master             // latest known master; guarded by mu
	cancel  context.CancelFunc // cancels the running verification; guarded by mu
	closed  bool               // guarded by mu
}

// A master is a Sentinel's view of the master.
type master struct {
	address string
	epoch   int64 // configuration epoch, increased by each failover
}

// stragglerWait is how long findMaster waits for the remaining Sentinels after most have responded.
const stragglerWait = 100 * time.Millisecond

// findMaster queries all Sentinels for the master. It closes the connections to all other servers.
func (s *sentinels) findMaster(ctx context.Context) (master, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.dial.timeout, errTimeout)
	defer cancel() // cancels the remaining queries
	answers := make(chan sentinelReply, len(s.nodes))
	for _, node := range s.nodes {
		go func() { answers <- s.query(ctx, node) }()
	}
	var candidates []master
	var failures []error
	var majorityTimer <-chan time.Time
	for range s.nodes {
		select {
		case a := <-answers:
			if a.err != nil {
				failures = append(failures, a.err)
			} else {
				candidates = append(candidates, a.master)
			}
		case <-majorityTimer:
			return s.chooseMaster(candidates, failures)
		}
		if majorityTimer == nil && len(candidates) > len(s.nodes)/2 {
			majorityTimer = time.After(stragglerWait)
		}
	}
	return s.chooseMaster(candidates, failures)
}

type sentinelReply struct {
	master master
	err    error
}

// query queries one Sentinel. It requests the epoch first, so that the address belongs to this epoch or a later one. The
// response to SENTINEL MASTER also contains an address, but for a while after a failover this is the old address with the new
// epoch.
func (s *sentinels) query(ctx context.Context, node *redis.SentinelClient) sentinelReply {
	info, err := node.Master(ctx, s.masterName).Result()
	if err != nil {
		return sentinelReply{err: err}
	}
	epoch, err := strconv.ParseInt(info["config-epoch"], 10, 64)
	if err != nil {
		return sentinelReply{err: fmt.Errorf("parsing Sentinel's config-epoch: %w", err)}
	}
	address, err := node.GetMasterAddrByName(ctx, s.masterName).Result()
	if err != nil {
		return sentinelReply{err: err}
	}
	if len(address) != 2 {
		return sentinelReply{err: fmt.Errorf("Sentinel returned an invalid address for %s: %q", s.masterName, address)}
	}
	return sentinelReply{master: master{net.JoinHostPort(address[0], address[1]), epoch}}
}

// chooseMaster chooses the master. If most Sentinels have not responded, a master with a lower epoch does not replace the known
// master.
func (s *sentinels) chooseMaster(candidates []master, failures []error) (master, error) {
	if len(candidates) == 0 {
		return master{}, fmt.Errorf("no Sentinel returned the address of master %s: %w", s.masterName, errors.Join(failures...))
	}
	latest := slices.MaxFunc(candidates, func(a, b master) int { return cmp.Compare(a.epoch, b.epoch) })
	s.mu.Lock()
	if len(candidates) <= len(s.nodes)/2 && latest.epoch < s.current.epoch {
		latest = s.current
	}
	s.current = latest
	s.mu.Unlock()
	s.connections.closeExcept(latest.address)
	return latest, nil
}

// connect connects to the master. It ignores the address from the client, which does not know the master's address.
func (s *sentinels) connect(ctx context.Context, _, _ string) (net.Conn, error) {
	m, err := s.findMaster(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := s.dial.tcp(ctx, m.address)
	if err != nil {
		return nil, err
	}
	return s.dial.startTLS(ctx, s.connections.add(conn, m.address), m.address)
}

// refresh starts finding the master in the background, unless this is already running.
func (s *sentinels) refresh() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.cancel != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go func() {
		_, _ = s.findMaster(ctx) // ignore errors: the next connection reports them
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cancel = nil
	}()
}

func (s *sentinels) close() error {
	s.mu.Lock()
	s.closed = true
	if s.cancel != nil {
		s.cancel()
	}
	s.mu.Unlock()
	var errs []error
	for _, node := range s.nodes {
		errs = append(errs, node.Close())
	}
	return errors.Join(errs...)
}

// A dialer makes TCP and TLS connections.
type dialer struct {
	timeout time.Duration
	tls     *tls.Config // nil without TLS
}

func (d dialer) tcp(ctx context.Context, address string) (*net.TCPConn, error) {
	conn, err := (&net.Dialer{Timeout: d.timeout}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

// startTLS starts TLS on a connection if TLS is configured.
func (d dialer) startTLS(ctx context.Context, conn net.Conn, address string) (net.Conn, error) {
	if d.tls == nil {
		return conn, nil
	}
	config := d.tls.Clone()
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(address)
	}
	tlsConn := tls.Client(conn, config)
	if err := tlsConn.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return tlsConn, nil
}

// connSet contains the open connections to masters.
type connSet struct {
	mu   sync.Mutex
	open map[*masterConn]struct{} // guarded by mu
}

// A masterConn is an open connection. It embeds a TCP connection, so that the client can detect that the server has closed it.
type masterConn struct {
	*net.TCPConn
	address string // address of the server, as reported by the Sentinels
	set     *connSet
}

func (l *connSet) add(conn *net.TCPConn, address string) *masterConn {
	added := &masterConn{conn, address, l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		l.open = map[*masterConn]struct{}{}
	}
	l.open[added] = struct{}{}
	return added
}

// Close implements [net.Conn].
func (l *masterConn) Close() error {
	l.set.mu.Lock()
	delete(l.set.open, l)
	l.set.mu.Unlock()
	return l.TCPConn.Close()
}

// closeExcept closes the connections to all servers except the one at address. Pending calls fail, and the client reconnects.
func (l *connSet) closeExcept(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for open := range l.open {
		if open.address != address {
			delete(l.open, open)
			_ = open.TCPConn.Close() // ignore errors: the connection is abandoned anyway
		}
	}
}
