package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
)

// runningClients are Go HTTP clients that send requests in a loop. They repeat a GET request if its connection breaks, as RFC
// 9110 §9.2.2 allows.
type runningClients struct {
	end              context.CancelFunc
	done             sync.WaitGroup
	answered, resent atomic.Int64
	errs             [connections]error
}

// startClients starts clients that do not share connections.
func startClients(t *testing.T, g *gateway, protocol, token, address string) *runningClients {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	c := &runningClients{end: end}
	for i := range connections {
		client := newClient(g.roots)
		if protocol == "HTTP/1.1" {
			// A non-nil map disables HTTP/2.
			client.Transport.(*http.Transport).TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
			client.Transport.(*http.Transport).ForceAttemptHTTP2 = false
		}
		r := newRequest(t, http.MethodGet, address, "")
		r.Header.Set("Authorization", "Bearer "+token)
		c.done.Go(func() {
			defer client.CloseIdleConnections()
			for ctx.Err() == nil && c.errs[i] == nil {
				c.errs[i] = c.ask(client, r, protocol)
			}
		})
	}
	t.Cleanup(func() { end(); c.done.Wait() })
	return c
}

func (c *runningClients) ask(client *http.Client, r *http.Request, protocol string) error {
	response, err := client.Do(r)
	if err != nil {
		c.resent.Add(1)
		response, err = client.Do(r)
	}
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || response.Proto != protocol {
		return errors.New(response.Proto + " " + response.Status)
	}
	c.answered.Add(1)
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

// wait stops the clients and returns the numbers of responses and retries. It fails the test if all retries failed.
func (c *runningClients) wait(t *testing.T) (answered, resent int64) {
	t.Helper()
	c.end()
	c.done.Wait()
	for _, err := range c.errs {
		if err != nil {
			t.Errorf("a request was dropped: %v", err)
		}
	}
	return c.answered.Load(), c.resent.Load()
}
