package e2e

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A redisServer is a Redis server or Sentinel on loopback with its own folder. The environment variable REDIS_SERVER specifies
// another program, such as valkey-server.
type redisServer struct {
	folder  string
	port    string
	process *process
	options []string // command-line options
	client  *redis.Client
}

// startRedis runs a server until the end of the test. options are command-line options, such as "--maxmemory", "4mb". The data
// survives a restart.
func startRedis(t testing.TB, options ...string) *redisServer {
	t.Helper()
	s := newRedisServer(t, append([]string{"--save", "", "--appendonly", "yes", "--appendfsync", "always"}, options...)...)
	s.start(t)
	return s
}

func newRedisServer(t testing.TB, options ...string) *redisServer {
	t.Helper()
	if _, err := exec.LookPath(redisProgram()); err != nil {
		t.Skipf("the server of Redis is not installed: %v", err)
	}
	folder, err := os.MkdirTemp("", "redis") // the length of a socket path is limited
	if err != nil {
		t.Fatal(err)
	}
	s := &redisServer{folder: folder, port: redisPort(t)}
	s.options = append([]string{
		"--port", s.port, "--bind", "127.0.0.1", "--dir", folder, "--unixsocket", s.socket(), "--repl-diskless-sync-delay", "0",
	}, options...)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return s
}

func redisProgram() string { return cmp.Or(os.Getenv("REDIS_SERVER"), "redis-server") }

// redisPort returns a free port below 55536, because a cluster node also listens on this port plus 10,000.
func redisPort(t testing.TB) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
		if port := l.Addr().(*net.TCPAddr).Port; port < 55536 {
			return strconv.Itoa(port)
		}
	}
	t.Fatal("no port below 55536 is free")
	return ""
}

func (s *redisServer) address() string { return "127.0.0.1:" + s.port }

func (s *redisServer) socket() string { return filepath.Join(s.folder, "socket") }

// start starts or restarts the server, and waits until it responds.
func (s *redisServer) start(t testing.TB) {
	t.Helper()
	p, err := startProcess("redis-"+s.port, nil, redisProgram(), s.options...)
	if err != nil {
		t.Fatal(err)
	}
	s.process = p
	t.Cleanup(s.kill)
	if s.client == nil {
		s.client = redis.NewClient(&redis.Options{Addr: s.address(), MaxRetries: -1, Protocol: 2, DisableIdentity: true, PoolSize: 2})
		t.Cleanup(func() { _ = s.client.Close() })
	}
	// A server that rejects the command because it requires a password is ready.
	if err := p.ready(func() error {
		err := s.client.Ping(context.Background()).Err()
		if redis.HasErrorPrefix(err, "NOAUTH") {
			return nil
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// kill kills the server with SIGKILL.
func (s *redisServer) kill() {
	_ = s.process.cmd.Process.Signal(syscall.SIGCONT)
	_ = s.process.cmd.Process.Kill()
	<-s.process.done
}

// pause pauses the server until resume is called.
func (s *redisServer) pause()  { _ = s.process.cmd.Process.Signal(syscall.SIGSTOP) }
func (s *redisServer) resume() { _ = s.process.cmd.Process.Signal(syscall.SIGCONT) }

// forget deletes the data of the server, which must not be running.
func (s *redisServer) forget(t testing.TB) {
	t.Helper()
	for _, name := range []string{"appendonlydir", "appendonly.aof", "dump.rdb"} {
		if err := os.RemoveAll(filepath.Join(s.folder, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// do sends a command and returns the response.
func (s *redisServer) do(t testing.TB, words ...any) any {
	t.Helper()
	answer, err := s.client.Do(context.Background(), words...).Result()
	if err != nil {
		t.Fatalf("%v: %v", words, err)
	}
	return answer
}

// await waits until a section of INFO contains the text.
func (s *redisServer) await(t *testing.T, section, text string) {
	t.Helper()
	if err := s.process.ready(func() error {
		info, err := s.client.Info(context.Background(), section).Result()
		if err == nil && !strings.Contains(info, text) {
			err = fmt.Errorf("no %s in %s", text, info)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// A redisSentinel is a Redis master with two replicas and three Sentinels.
type redisSentinel struct {
	servers   []*redisServer // the first is the initial master
	sentinels []*redisServer
}

const (
	sentinelMaster = "gateways"

	// sentinelDown is how long a server may not respond before a Sentinel considers it down.
	sentinelDown = time.Second
)

// startRedisSentinel runs all servers until the end of the test. options are for the Redis servers.
func startRedisSentinel(t *testing.T, options ...string) *redisSentinel {
	t.Helper()
	r := &redisSentinel{}
	for i := range 3 {
		more := options
		if i > 0 {
			more = append([]string{"--replicaof", "127.0.0.1", r.servers[0].port}, options...)
		}
		r.servers = append(r.servers, startRedis(t, more...))
	}
	for _, replica := range r.servers[1:] {
		replica.await(t, "replication", "master_link_status:up")
	}
	for range 3 {
		r.sentinels = append(r.sentinels, startSentinel(t, r.servers[0].port))
	}
	for _, sentinel := range r.sentinels {
		sentinel.await(t, "sentinel", "slaves=2,sentinels=3")
	}
	return r
}

func startSentinel(t *testing.T, masterPort string) *redisServer {
	t.Helper()
	s := newRedisServer(t)
	file := filepath.Join(s.folder, "sentinel.conf")
	text := fmt.Sprintf("port %s\nbind 127.0.0.1\ndir %s\nsentinel monitor %[3]s 127.0.0.1 %[4]s 2\n"+
		"sentinel down-after-milliseconds %[3]s %[5]d\nsentinel failover-timeout %[3]s 5000\n",
		s.port, s.folder, sentinelMaster, masterPort, sentinelDown.Milliseconds())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.options = []string{file, "--sentinel"}
	s.start(t)
	return s
}

// addresses returns the addresses of the Sentinels.
func (r *redisSentinel) addresses() []string {
	var all []string
	for _, s := range r.sentinels {
		all = append(all, s.address())
	}
	return all
}

// master returns the server that the Sentinels consider the master.
func (r *redisSentinel) master(t *testing.T) *redisServer {
	t.Helper()
	named := r.sentinels[0].do(t, "SENTINEL", "get-master-addr-by-name", sentinelMaster).([]any)
	for _, s := range r.servers {
		if s.port == named[1] {
			return s
		}
	}
	t.Fatalf("the Sentinels name %v", named)
	return nil
}

// startRedisCluster runs three masters until the end of the test. They divide all hash slots among them.
func startRedisCluster(t *testing.T, options ...string) []*redisServer {
	t.Helper()
	var nodes []*redisServer
	for i := range 3 {
		node := newRedisServer(t, append([]string{
			"--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--save", "", "--appendonly", "yes",
		}, options...)...)
		node.start(t)
		var slots []any
		for slot := i * 16384 / 3; slot < (i+1)*16384/3; slot++ {
			slots = append(slots, slot)
		}
		node.do(t, append([]any{"CLUSTER", "ADDSLOTS"}, slots...)...)
		node.do(t, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
		nodes = append(nodes, node)
	}
	for _, node := range nodes[1:] {
		nodes[0].do(t, "CLUSTER", "MEET", "127.0.0.1", node.port)
	}
	for _, node := range nodes {
		if err := node.process.ready(func() error {
			info, err := node.client.ClusterInfo(context.Background()).Result()
			if err == nil && (!strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_known_nodes:3")) {
				err = fmt.Errorf("the cluster is not complete: %s", info)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	return nodes
}
