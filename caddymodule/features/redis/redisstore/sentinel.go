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
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

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
