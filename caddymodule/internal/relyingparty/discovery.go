package relyingparty

import (
	"context"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4/json"
)

// Discovery is an issuer's discovery document, to be passed on. It is fetched on first use
// and refreshed hourly; while that fails, the old one is used for another day. It is safe
// for concurrent use.
type Discovery struct {
	text *document[[]byte]
}

// NewDiscovery returns the Discovery of c.Issuer, without I/O. It ignores c.URI.
func NewDiscovery(c KeySetConfig) (*Discovery, error) {
	if err := CheckIssuer(c.Issuer); err != nil {
		return nil, err
	}
	client := newClient(c.Transport, c.Timeout)
	return &Discovery{&document[[]byte]{
		pause: minInterval, failed: warner(c.Logger, c.Issuer),
		fetch: func(ctx context.Context) ([]byte, time.Duration, error) {
			body, err := discoveryText(ctx, client, c.Issuer)
			if err == nil {
				err = checkDiscovery(body, c.Issuer)
			}
			return body, metadataLifetime, err
		},
	}}, nil
}

// Text returns the document once issuer and endpoints are checked. Its error is an [Error]
// if the failure has a kind.
func (d *Discovery) Text(ctx context.Context) ([]byte, error) { return d.text.get(ctx) }

// checkDiscovery also checks the endpoints that are only passed on.
func checkDiscovery(body []byte, issuer string) error {
	m, err := parseMetadata(body, issuer)
	if err != nil {
		return err
	}
	if err := m.checkSignIn(); err != nil {
		return err
	}
	var further struct {
		Registration string `json:"registration_endpoint"`
		Management   string `json:"management_endpoint"`
		Brands       string `json:"user_access_brand_bundle"`
	}
	if err := json.Unmarshal(body, &further); err != nil {
		return fmt.Errorf("%w: %w", ErrMetadata, err)
	}
	return checkEndpoints(issuer,
		named{"revocation_endpoint", m.RevocationEndpoint},
		named{"introspection_endpoint", m.IntrospectionEndpoint},
		named{"registration_endpoint", further.Registration},
		named{"management_endpoint", further.Management},
		named{"user_access_brand_bundle", further.Brands},
	)
}
