package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// counter is a proxy that counts round trips. A client's request after a response starts a new round trip.
type counter struct {
	target string
	trips  atomic.Int64
	bytes  atomic.Int64 // number of bytes in both directions
}

// listen starts a proxy that forwards to target, and returns its address.
func (c *counter) listen(target string) (string, error) {
	c.target = target
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go c.pass(client)
		}
	}()
	return l.Addr().String(), nil
}

func (c *counter) pass(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", c.target)
	if err != nil {
		return // the client gets a connection error
	}
	defer server.Close()
	var answered atomic.Bool
	answered.Store(true)
	go func() {
		defer client.Close()
		_, _ = io.Copy(client, reader{server, func(n int) { answered.Store(true); c.bytes.Add(int64(n)) }})
	}()
	_, _ = io.Copy(server, reader{client, func(n int) {
		if c.bytes.Add(int64(n)); answered.Swap(false) {
			c.trips.Add(1)
		}
	}})
}

// reader calls tell with the number of bytes of each read.
type reader struct {
	io.Reader
	tell func(n int)
}

// Read implements io.Reader.
func (r reader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	if n > 0 {
		r.tell(n)
	}
	return n, err
}

// operationsCounted is the number of sequential operations for which round trips are counted.
const operationsCounted = 200

// countTrips prints the round trips of each operation, minus those of the gateway's background traffic.
func (s *settings) countTrips(ctx context.Context, store string) error {
	count := new(counter)
	s.between = count.listen
	defer func() { s.between = nil }()
	of, err := s.newSubject(ctx, store, 1)
	if err != nil {
		return err
	}
	defer of.Stop()
	const idle = 5 * time.Second
	before := count.trips.Load()
	time.Sleep(idle)
	alone := float64(count.trips.Load()-before) / idle.Seconds()
	fmt.Printf("\nRound trips to %s, by a proxy that counts them; %.1f a second of a gateway that nobody asks anything:\n\n| operation | round trips | bytes |\n|---|--:|--:|\n", store, alone)
	for _, d := range duties {
		if err := d.do(of.workers[0], ctx); err != nil { // the first operation reads values that are read only once
			return err
		}
		start, trips, bytes := time.Now(), count.trips.Load(), count.bytes.Load()
		for range operationsCounted {
			if err := d.do(of.workers[0], ctx); err != nil {
				return err
			}
		}
		made := float64(count.trips.Load()-trips) - alone*time.Since(start).Seconds()
		fmt.Printf("| %s | %.2f | %d |\n", d.name, made/operationsCounted, (count.bytes.Load()-bytes)/operationsCounted)
	}
	return nil
}
