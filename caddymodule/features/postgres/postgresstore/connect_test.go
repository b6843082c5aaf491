package postgresstore

import (
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// The error contains the server's reason, not its earlier rejection of optional TLS.
func TestConnectionErrorHasCause(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		code, message string
	}{
		"starting":             {"57P03", "the database system is starting up"},
		"too many connections": {"53300", "sorry, too many clients already"},
		"no such database":     {"3D000", "database nowhere does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host, port := refusingServer(t, "SFATAL\x00C"+tt.code+"\x00M"+tt.message+"\x00\x00")
			s, err := New(Config{DSN: "host=" + host + " port=" + port + " user=u dbname=d", Timeout: 5 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			for call, err := range map[string]error{"Open": s.Open(t.Context()), "Delete": s.Delete(t.Context(), "k")} {
				if err == nil || !strings.Contains(err.Error(), tt.message) || strings.Contains(err.Error(), "TLS") {
					t.Errorf("%s: %v", call, err)
				}
			}
		})
	}
}

// refusingServer starts a server that rejects TLS and responds to each connection with an error.
func refusingServer(t *testing.T, failure string) (host, port string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go refuse(c, failure)
		}
	}()
	host, port, _ = net.SplitHostPort(l.Addr().String())
	return host, port
}

func refuse(c net.Conn, failure string) {
	defer c.Close()
	var head [8]byte
	for {
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return
		}
		if binary.BigEndian.Uint32(head[4:]) != 80877103 { // the request is not an SSLRequest
			break
		}
		if _, err := c.Write([]byte("N")); err != nil {
			return
		}
	}
	_, _ = io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(head[:])-8))
	_, _ = c.Write(append(binary.BigEndian.AppendUint32([]byte("E"), uint32(4+len(failure))), failure...))
}
