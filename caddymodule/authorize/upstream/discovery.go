package upstream

import (
	"context"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4/json"
)

// Discovery is the discovery document of an issuer, for passing on. It is fetched on
// first use and renewed hourly; an old one is used for a day while that fails. It is
// safe for concurrent use.
type Discovery struct {
	text *document[[]byte]
}

// NewDiscovery returns the Discovery of c.Issuer, without I/O. URI and MinInterval are
// not used.
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

// Text returns the document, with issuer and endpoints checked. Its error is an [Error]
// if the fault has a kind.
func (d *Discovery) Text(ctx context.Context) ([]byte, error) { return d.text.get(ctx) }

// checkDiscovery also checks endpoints that we do not use, but pass on.
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
