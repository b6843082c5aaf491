package storefault

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// A Proxy forwards connections to a store's server. Tests can disrupt these connections.
type Proxy struct {
	listener net.Listener
	network  string // network of the server's address, such as tcp or unix
	server   string

	mu     sync.Mutex
	links  map[*link]bool
	lose   int           // number of responses to drop
	onLoss func()        // called before the connection of a dropped response is closed
	silent bool          // whether responses are dropped
	refuse bool          // whether connections are closed immediately
	delay  time.Duration // delay of each response
}

// NewProxy runs a proxy on loopback until the end of the test. network and server are the network (such as tcp or unix) and the
// address of the server.
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

// Address returns the address of the proxy as host:port.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// LoseAnswers makes the proxy close the connection instead of forwarding a response, for each of the next n responses. The
// server has then executed the request. If onLoss is not nil, it is called before the connection is closed.
func (p *Proxy) LoseAnswers(n int, onLoss func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose, p.onLoss = n, onLoss
}

// SetSilent makes the proxy drop all responses while connections stay open. Connections open at that time stay silent.
func (p *Proxy) SetSilent(silent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = silent
	for l := range p.links {
		l.silent = l.silent || silent
	}
}

// SetRefusing makes the proxy close all connections, including new ones.
func (p *Proxy) SetRefusing(refuse bool) {
	p.mu.Lock()
	p.refuse = refuse
	p.mu.Unlock()
	if refuse {
		p.Cut()
	}
}

// SetDelay makes the proxy delay each response by d.
func (p *Proxy) SetDelay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Cut closes all existing connections.
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

// A link is one forwarded connection.
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
		_, _ = io.Copy(l.server, l.client) // forwards until either side closes
		l.close()
	}()
	p.passAnswers(l)
	l.close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// link connects to the server for a client. It returns nil if the connection fails.
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

// disturb returns how the next response on l is disrupted.
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
