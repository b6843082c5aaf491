package deployment

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
)

// Network is the network of a deployment: either one network namespace per server, with routing by this machine, or loopback.
type Network struct {
	name  string // prefix of the namespace names and name of the iptables chain; empty for loopback
	block string // address block of the namespaces
	hosts int
}

// host is a namespace and address for a server.
type host struct {
	namespace string // empty for the namespace of this machine
	address   string
}

// enter returns the command that runs command in the namespace.
func (h host) enter(command []string) []string {
	if h.namespace == "" {
		return command
	}
	return append([]string{"ip", "netns", "exec", h.namespace}, command...)
}

// listen returns an unused address on the host.
func (h host) listen() (string, error) {
	if h.namespace != "" {
		return net.JoinHostPort(h.address, "8000"), nil // each namespace contains only one server
	}
	l, err := net.Listen("tcp", net.JoinHostPort(h.address, "0"))
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// Loopback returns a network that does not support cuts.
func Loopback() *Network { return new(Network) }

// NewNetwork creates a network of namespaces, which requires root. It returns an error if this machine does not permit that.
func NewNetwork() (*Network, error) {
	n := &Network{name: fmt.Sprintf("fhir%d", os.Getpid()), block: fmt.Sprintf("10.211.%d", os.Getpid()%250)}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o600); err != nil {
		return nil, err
	}
	err := run(
		"iptables -w -N "+n.name,
		"iptables -w -I FORWARD -j "+n.name,
	)
	if err == nil {
		err = n.Heal()
	}
	if err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

// Cuts reports whether the network supports [Network.Cut].
func (n *Network) Cuts() bool { return n.name != "" }

// host adds a host for a server.
func (n *Network) host() (host, error) {
	if !n.Cuts() {
		return host{address: "127.0.0.1"}, nil
	}
	if n.hosts == 63 {
		return host{}, errors.New("too many servers in one network")
	}
	namespace := fmt.Sprintf("%s-%d", n.name, n.hosts)
	here, there := fmt.Sprintf("%s.%d", n.block, 4*n.hosts+1), fmt.Sprintf("%s.%d", n.block, 4*n.hosts+2)
	near, far := link(n.hosts), fmt.Sprintf("fp%d-%d", os.Getpid()%100000, n.hosts)
	n.hosts++
	return host{namespace, there}, run(
		"ip netns add "+namespace,
		"ip link add "+near+" type veth peer name "+far,
		"ip link set "+far+" netns "+namespace,
		"ip addr add "+here+"/30 dev "+near,
		"ip link set "+near+" up",
		"ip -n "+namespace+" addr add "+there+"/30 dev "+far,
		"ip -n "+namespace+" link set "+far+" up",
		"ip -n "+namespace+" link set lo up",
		"ip -n "+namespace+" route add default via "+here,
	)
}

// link returns the name of this machine's end of the link to the host with the given number.
func link(host int) string { return fmt.Sprintf("fh%d-%d", os.Getpid()%100000, host) }

// Cut drops all packets between two servers in both directions. Existing connections stay open.
func (n *Network) Cut(a, b *Process) error {
	if a.host.namespace == b.host.namespace {
		return errors.New("both are in the same namespace")
	}
	return run(
		"iptables -w -I "+n.name+" -s "+a.host.address+" -d "+b.host.address+" -j DROP",
		"iptables -w -I "+n.name+" -s "+b.host.address+" -d "+a.host.address+" -j DROP",
	)
}

// Heal restores all connections that were cut.
func (n *Network) Heal() error {
	if !n.Cuts() {
		return nil
	}
	return run(
		"iptables -w -F "+n.name,
		"iptables -w -A "+n.name+" -s "+n.block+".0/24 -d "+n.block+".0/24 -j ACCEPT",
	)
}

// Close deletes the namespaces and rules of the network.
func (n *Network) Close() {
	if !n.Cuts() {
		return
	}
	for i := range n.hosts {
		// The link is deleted only some time after its namespace, but the links of the next network have the same names.
		_ = run("ip link del " + link(i))
		_ = run("ip netns del " + fmt.Sprintf("%s-%d", n.name, i))
	}
	for _, command := range []string{"-D FORWARD -j " + n.name, "-F " + n.name, "-X " + n.name} {
		_ = run("iptables -w " + command)
	}
}

// run runs commands with arguments separated by spaces, until one of them fails.
func run(commands ...string) error {
	for _, command := range commands {
		words := strings.Fields(command)
		if output, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", command, err, output)
		}
	}
	return nil
}
