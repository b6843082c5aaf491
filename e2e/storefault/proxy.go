package storefault

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// A Proxy forwards connections to a store's server until a test disrupts them.
type Proxy struct {
	listener net.Listener
	network  string // network of the server
	server   string

	mu     sync.Mutex
	links  map[*link]bool
	lose   int           // number of responses that will be lost
	onLoss func()        // called before the connection is closed
	silent bool          // responses are dropped
	refuse bool          // connections are closed immediately
	delay  time.Duration // delay of each response
}

// NewProxy runs a proxy on loopback until the end of the test. The server is at an address of a network, such as tcp
// or unix.
func NewProxy(t *testing.T, network, server string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p := &Proxy{listener: l, network: network, server: server, links: map[*link]bool{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.accept()
	}()
	t.Cleanup(func() {
		_ = l.Close()
		p.Cut()
		<-done
	})
	return p
}

// Address returns the address of the proxy, host:port.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// LoseAnswers closes the connection instead of forwarding each of the next n responses, so the server has
// executed the request. onLoss is called before that, unless it is nil.
func (p *Proxy) LoseAnswers(n int, onLoss func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose, p.onLoss = n, onLoss
}

// SetSilent drops all responses while connections stay open. Existing connections stay silent.
func (p *Proxy) SetSilent(silent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = silent
	for l := range p.links {
		l.silent = l.silent || silent
	}
}

// SetRefusing closes all connections, and new ones immediately.
func (p *Proxy) SetRefusing(refuse bool) {
	p.mu.Lock()
	p.refuse = refuse
	p.mu.Unlock()
	if refuse {
		p.Cut()
	}
}

// SetDelay delays each answer.
func (p *Proxy) SetDelay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Cut closes all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // the test has ended
		}
		go p.serve(client)
	}
}

// A link is a forwarded connection.
type link struct {
	client, server net.Conn
	silent         bool // guarded by Proxy.mu
}

func (l *link) close() {
	_ = l.client.Close()
	_ = l.server.Close()
}

func (p *Proxy) serve(client net.Conn) {
	l := p.link(client)
	if l == nil {
		_ = client.Close()
		return
	}
	go func() {
		_, _ = io.Copy(l.server, l.client) // until one side closes
		l.close()
	}()
	p.passAnswers(l)
	l.close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// link connects to the server. It returns nil if that fails.
func (p *Proxy) link(client net.Conn) *link {
	server, err := net.DialTimeout(p.network, p.server, time.Second)
	if err != nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse {
		_ = server.Close()
		return nil
	}
	l := &link{client, server, p.silent}
	p.links[l] = true
	return l
}

func (p *Proxy) passAnswers(l *link) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := l.server.Read(buffer)
		if err != nil {
			return
		}
		lost, silent, delay := p.disturb(l)
		switch {
		case lost:
			return
		case silent:
			continue
		}
		time.Sleep(delay)
		if _, err := l.client.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// disturb returns the disruption of a response.
func (p *Proxy) disturb(l *link) (lost, silent bool, delay time.Duration) {
	p.mu.Lock()
	onLoss := p.onLoss
	if p.lose > 0 {
		p.lose--
		lost = true
	}
	silent, delay = l.silent, p.delay
	p.mu.Unlock()
	if lost && onLoss != nil {
		onLoss()
	}
	return lost, silent, delay
}
