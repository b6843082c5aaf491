package relyingparty

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// fetchTimeout is that of [Fetch]: a person waits for what is fetched.
const fetchTimeout = 5 * time.Second

// Fetch returns what is at an address that a client registered, within five seconds and up to a
// number of bytes. It follows no redirect, and sends nothing that names a person. Which hosts it
// reaches is up to the transport; see [PublicTransport].
func Fetch(ctx context.Context, transport http.RoundTripper, url string, most int) ([]byte, error) {
	body, _, err := newClient(transport, fetchTimeout).get(ctx, registeredAddress, url, nil)
	if err == nil && len(body) > most {
		err = fmt.Errorf("%s: %w: more than %d bytes", registeredAddress, ErrTooLarge, most)
	}
	return body, err
}
