package upstream

import (
	"context"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4/json"
)

// Discovery is what an issuer says of itself, for those who are to find its endpoints by
// us. It is fetched on first use, renewed hourly, and an old one is used for a day while
// no newer one can be had. It is safe for concurrent use.
type Discovery struct {
	text *document[[]byte]
}

// NewDiscovery checks the configuration, of which URI and MinInterval do not count, and
// returns its Discovery. It does no I/O.
func NewDiscovery(c KeySetConfig) (*Discovery, error) {
	if err := CheckIssuer(c.Issuer); err != nil {
		return nil, err
	}
	client := newClient(c.Transport, c.Timeout)
	return &Discovery{&document[[]byte]{
		pause: DefaultMinInterval, failed: warner(c.Logger, c.Issuer),
		fetch: func(ctx context.Context) ([]byte, time.Duration, error) {
			body, err := discoveryText(ctx, client, c.Issuer)
			if err == nil {
				err = checkDiscovery(body, c.Issuer)
			}
			return body, metadataLifetime, err
		},
	}}, nil
}

// Text is the document, of which issuer and endpoints are checked, and sign-ins are
// possible. Its error is an [Error] where that has a kind.
func (d *Discovery) Text(ctx context.Context) ([]byte, error) { return d.text.get(ctx) }

// checkDiscovery checks what we use ourselves, and what we pass on alone.
func checkDiscovery(body []byte, issuer string) error {
	m, err := parseMetadata(body, issuer)
	if err != nil {
		return err
	}
	if err := m.checkSignIn(); err != nil {
		return err
	}
	var further struct {
		Revocation    string `json:"revocation_endpoint"`
		Introspection string `json:"introspection_endpoint"`
		Registration  string `json:"registration_endpoint"`
	}
	if err := json.Unmarshal(body, &further); err != nil {
		return fmt.Errorf("%w: %w", ErrMetadata, err)
	}
	return checkEndpoints(issuer,
		named{"revocation_endpoint", further.Revocation},
		named{"introspection_endpoint", further.Introspection},
		named{"registration_endpoint", further.Registration},
	)
}
