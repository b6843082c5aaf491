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
		DialTimeout: o.attempt(), ReadTimeout: o.attempt(), WriteTimeout: o.attempt(),
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
		DialTimeout: o.attempt(), ReadTimeout: o.attempt(), WriteTimeout: o.attempt(),
		MaxRedirects: retries, MinRetryBackoff: minPause, MaxRetryBackoff: maxPause, DialerRetries: 1,
		ContextTimeoutEnabled: true, Protocol: 2, DisableIdentity: true, MaintNotificationsConfig: noNotifications(),
	}
}

// noNotifications spares a new connection a question that only Redis Enterprise answers.
// Likewise, DisableIdentity spares it CLIENT SETINFO, which servers before 7.2 do not know.
func noNotifications() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// sentinels tell which server is the master. All of them are asked: one that was cut off together
// with an old master goes on naming that one. Where they differ, the one whose configuration is
// of the highest epoch knows of the latest failover.
type sentinels struct {
	name  string // of the master
	nodes []*redis.SentinelClient
	dial  dialer
	links links

	mu      sync.Mutex
	current master             // guarded by mu; the latest known
	cancel  context.CancelFunc // guarded by mu; of the verification that is going on
	closed  bool               // guarded by mu
}

// A master is what a Sentinel knows about it.
type master struct {
	address string
	epoch   int64 // of the configuration: each failover has one of its own
}

// latecomers is how long the last Sentinels are waited for when most have answered.
const latecomers = 100 * time.Millisecond

// find asks all Sentinels. Connections to another server than the master are closed.
func (s *sentinels) find(ctx context.Context) (master, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.dial.timeout, errTimeout)
	defer cancel() // of whoever is late
	answers := make(chan answer, len(s.nodes))
	for _, node := range s.nodes {
		go func() { answers <- s.ask(ctx, node) }()
	}
	var named []master
	var failures []error
	var enough <-chan time.Time
	for range s.nodes {
		select {
		case a := <-answers:
			if a.err != nil {
				failures = append(failures, a.err)
			} else {
				named = append(named, a.master)
			}
		case <-enough:
			return s.settle(named, failures)
		}
		if enough == nil && len(named) > len(s.nodes)/2 {
			enough = time.After(latecomers)
		}
	}
	return s.settle(named, failures)
}

type answer struct {
	master master
	err    error
}

// ask asks one Sentinel. The epoch is asked for first: the address that follows is of that epoch
// or a later one. SENTINEL MASTER has an address, too, but for a while the old one with the new
// epoch.
func (s *sentinels) ask(ctx context.Context, node *redis.SentinelClient) answer {
	info, err := node.Master(ctx, s.name).Result()
	if err != nil {
		return answer{err: err}
	}
	epoch, err := strconv.ParseInt(info["config-epoch"], 10, 64)
	if err != nil {
		return answer{err: fmt.Errorf("config-epoch: %w", err)}
	}
	address, err := node.GetMasterAddrByName(ctx, s.name).Result()
	if err != nil {
		return answer{err: err}
	}
	if len(address) != 2 {
		return answer{err: fmt.Errorf("the address of %s is %q", s.name, address)}
	}
	return answer{master: master{net.JoinHostPort(address[0], address[1]), epoch}}
}

// settle chooses what counts. Unless most Sentinels have answered, nothing is taken back that came
// from one which does not answer now.
func (s *sentinels) settle(named []master, failures []error) (master, error) {
	if len(named) == 0 {
		return master{}, fmt.Errorf("no Sentinel names the master %s: %w", s.name, errors.Join(failures...))
	}
	latest := slices.MaxFunc(named, func(a, b master) int { return cmp.Compare(a.epoch, b.epoch) })
	s.mu.Lock()
	if len(named) <= len(s.nodes)/2 && latest.epoch < s.current.epoch {
		latest = s.current
	}
	s.current = latest
	s.mu.Unlock()
	s.links.closeOthers(latest.address)
	return latest, nil
}

// connect connects to the master, for the client, which does not know the address.
func (s *sentinels) connect(ctx context.Context, _, _ string) (net.Conn, error) {
	m, err := s.find(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := s.dial.tcp(ctx, m.address)
	if err != nil {
		return nil, err
	}
	return s.dial.secure(ctx, s.links.add(conn, m.address), m.address)
}

// verify finds the master in the background, unless that is going on already.
func (s *sentinels) verify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.cancel != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go func() {
		_, _ = s.find(ctx) // whoever connects next gets the error
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

// A dialer makes connections.
type dialer struct {
	timeout time.Duration
	tls     *tls.Config // nil: without
}

func (d dialer) tcp(ctx context.Context, address string) (*net.TCPConn, error) {
	conn, err := (&net.Dialer{Timeout: d.timeout}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

// secure begins TLS on a connection, if there is to be any.
func (d dialer) secure(ctx context.Context, conn net.Conn, address string) (net.Conn, error) {
	if d.tls == nil {
		return conn, nil
	}
	config := d.tls.Clone()
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(address)
	}
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return secured, nil
}

// links are the open connections to masters.
type links struct {
	mu   sync.Mutex
	open map[*link]struct{} // guarded by mu
}

// A link is an open connection. It is a TCP connection, so that the client can see whether the
// other side has closed it.
type link struct {
	*net.TCPConn
	address string // of the server, as the Sentinels tell it
	among   *links
}

func (l *links) add(conn *net.TCPConn, address string) *link {
	added := &link{conn, address, l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		l.open = map[*link]struct{}{}
	}
	l.open[added] = struct{}{}
	return added
}

// Close implements [net.Conn].
func (l *link) Close() error {
	l.among.mu.Lock()
	delete(l.among.open, l)
	l.among.mu.Unlock()
	return l.TCPConn.Close()
}

// closeOthers closes the connections to all servers but one: whoever waits there for an answer
// learns that there is none, and the client connects anew.
func (l *links) closeOthers(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for open := range l.open {
		if open.address != address {
			delete(l.open, open)
			_ = open.TCPConn.Close() // it is of no use
		}
	}
}
