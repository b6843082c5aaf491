package deployment

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// redis is a single Redis server, or a master with replicas and a Sentinel for each server.
type redis struct {
	servers   []*Process
	sentinels []*Process
	addresses []string // addresses of the Redis servers
	watchers  []string // addresses of the Sentinels
	network   *Network
}

// sentinelMaster is the name of the master in the Sentinels' configuration.
const sentinelMaster = "fhir"

// startRedis starts one server. It syncs each change to disk before acknowledging it, so that it may be killed.
func startRedis(folder string, network *Network) (Engine, error) {
	r := &redis{network: network}
	if err := r.add(folder, "redis", "--appendfsync", "always"); err != nil {
		r.Stop()
		return nil, err
	}
	return r, nil
}

// startSentinel starts a master, two replicas and three Sentinels. The master accepts changes only while a replica is
// connected.
func startSentinel(folder string, network *Network) (Engine, error) {
	r := &redis{network: network}
	for i := range 3 {
		arguments := []string{"--appendfsync", "everysec", "--min-replicas-to-write", "1", "--min-replicas-max-lag", "2", "--repl-diskless-sync-delay", "0"}
		if i > 0 {
			host, port, _ := net.SplitHostPort(r.addresses[0])
			arguments = append(arguments, "--replicaof", host, port)
		}
		if err := r.add(folder, fmt.Sprintf("redis-%d", i+1), arguments...); err != nil {
			r.Stop()
			return nil, err
		}
	}
	for i := range r.servers {
		if err := r.watch(folder, i); err != nil {
			r.Stop()
			return nil, err
		}
	}
	return r, r.settled()
}

func (r *redis) add(folder, name string, arguments ...string) error {
	host, err := r.network.host()
	if err != nil {
		return err
	}
	address, err := host.listen()
	if err != nil {
		return err
	}
	data := filepath.Join(folder, name)
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(address)
	p := &Process{
		Name: name, host: host, log: filepath.Join(folder, name+".log"),
		ready: func() error { return ping(address) },
		command: append([]string{
			"redis-server", "--port", port, "--bind", host.address, "--dir", data, "--protected-mode", "no",
			"--save", "", "--appendonly", "yes",
		}, arguments...),
	}
	r.servers, r.addresses = append(r.servers, p), append(r.addresses, address)
	return p.Start()
}

// watch starts the Sentinel of a server. Both run on the same host, so that they are cut off together.
func (r *redis) watch(folder string, i int) error {
	beside := r.servers[i].host
	address := net.JoinHostPort(beside.address, "26379")
	if beside.namespace == "" {
		var err error
		if address, err = beside.listen(); err != nil {
			return err
		}
	}
	_, port, _ := net.SplitHostPort(address)
	master, masterPort, _ := net.SplitHostPort(r.addresses[0])
	file := filepath.Join(folder, fmt.Sprintf("sentinel-%d.conf", i+1))
	text := strings.Join([]string{
		"port " + port, "bind " + beside.address, "protected-mode no", "dir " + folder,
		"sentinel monitor " + sentinelMaster + " " + master + " " + masterPort + " 2",
		"sentinel down-after-milliseconds " + sentinelMaster + " 1000",
		"sentinel failover-timeout " + sentinelMaster + " 5000",
		"sentinel parallel-syncs " + sentinelMaster + " 2",
	}, "\n") + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	p := &Process{
		Name: fmt.Sprintf("sentinel-%d", i+1), host: beside, log: filepath.Join(folder, fmt.Sprintf("sentinel-%d.log", i+1)),
		ready: checkListening(address), command: []string{"redis-sentinel", file},
	}
	r.sentinels, r.watchers = append(r.sentinels, p), append(r.watchers, address)
	return p.Start()
}

// settled waits until the Sentinels have found each other and the replicas are connected.
func (r *redis) settled() error {
	return retryWithin(30*time.Second, func() error {
		for _, watcher := range r.watchers {
			answer, err := requestLine(watcher, "SENTINEL CKQUORUM "+sentinelMaster)
			if err != nil || !strings.HasPrefix(answer, "+OK 3") {
				return fmt.Errorf("the Sentinels are not ready: %s %w", answer, err)
			}
		}
		answer, err := requestLine(r.addresses[0], "WAIT 2 1000")
		if err == nil && answer != ":2" {
			err = errors.New("the replicas do not follow: " + answer)
		}
		return err
	})
}

func (r *redis) Directives() string {
	if len(r.sentinels) == 0 {
		return keyed + "\t\tstore redis {\n\t\t\turl redis://" + r.addresses[0] + "\n\t\t}\n"
	}
	return keyed + "\t\tstore redis {\n\t\t\turl redis://" + r.watchers[0] + "?master_name=" + sentinelMaster + "&addr=" + strings.Join(r.watchers[1:], "&addr=") +
		"\n\t\t\twait_replicas 1\n\t\t}\n"
}

func (r *redis) Addresses() []string {
	if len(r.sentinels) == 0 {
		return r.addresses
	}
	return r.watchers
}

// Servers returns the Redis servers. The current master comes first.
func (r *redis) Servers() []*Process {
	servers := append([]*Process(nil), r.servers...)
	if i := slices.Index(r.addresses, r.master()); i > 0 {
		servers[0], servers[i] = servers[i], servers[0]
	}
	return servers
}

// master returns the address that most Sentinels report as the master. A former master can't be asked, because it considers
// itself the master until a Sentinel demotes it.
func (r *redis) master() (address string) {
	votes := map[string]int{}
	for _, watcher := range r.watchers {
		answer, err := sendCommand(watcher, "SENTINEL get-master-addr-by-name "+sentinelMaster, 2)
		if err != nil {
			continue
		}
		at := net.JoinHostPort(answer[0], answer[1])
		if votes[at]++; votes[at] > votes[address] {
			address = at
		}
	}
	return address
}

func (r *redis) Stop() {
	for _, p := range append(append([]*Process(nil), r.sentinels...), r.servers...) {
		if p.cmd != nil && p.Running() {
			p.Kill()
		}
	}
}

func ping(address string) error {
	answer, err := requestLine(address, "PING")
	if err == nil && answer != "+PONG" {
		err = errors.New(answer)
	}
	return err
}

// requestLine sends an inline command and returns one line of the response.
func requestLine(address, command string) (string, error) {
	lines, err := sendCommand(address, command, 1)
	if err != nil {
		return "", err
	}
	return lines[0], nil
}

// sendCommand sends an inline command and returns up to most lines of the response, except lengths of arrays and bulk strings.
func sendCommand(address, command string, maxLines int) (answer []string, err error) {
	c, err := net.DialTimeout("tcp", address, 500*time.Millisecond)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return nil, err
	}
	if _, err := c.Write([]byte(command + "\r\n")); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(c)
	for len(answer) < maxLines && lines.Scan() {
		if line := lines.Text(); !strings.HasPrefix(line, "*") && !strings.HasPrefix(line, "$") {
			answer = append(answer, line)
		}
	}
	if len(answer) < maxLines {
		return nil, errors.Join(errors.New("no answer"), lines.Err())
	}
	return answer, nil
}

// retryWithin retries until try succeeds or bound has passed.
func retryWithin(bound time.Duration, try func() error) error {
	deadline := time.Now().Add(bound)
	for {
		err := try()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}
