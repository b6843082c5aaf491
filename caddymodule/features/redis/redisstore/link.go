package redisstore

import (
	"net"
	"sync"
)

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
