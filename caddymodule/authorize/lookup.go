package authorize

import (
	"context"
	"fmt"
	"log/slog"
)

// registry knows all clients.
type registry struct {
	configured map[string]*Client
	registrar  *registrar // nil where nobody can register
}

// client returns a client by its client_id, or nil where there is none: of those
// in the configuration, or else of those that registered themselves.
func (r *registry) client(ctx context.Context, id string) (*Client, error) {
	if c := r.configured[id]; c != nil || r.registrar == nil {
		return c, nil
	}
	c, err := r.registrar.load(ctx, id)
	if c == nil || err != nil {
		return nil, err
	}
	return &c.Client, nil
}

// newRegistry makes one that knows whoever registers, if clients can.
func newRegistry(c *Registration, logger *slog.Logger) (*registry, error) {
	registrar, err := newRegistrar(c, logger)
	return &registry{configured: map[string]*Client{}, registrar: registrar}, err
}

// add registers a client of the configuration.
func (r *registry) add(c Client, logger *slog.Logger) error {
	if r.configured[c.ID] != nil {
		return fmt.Errorf("client %q is there twice", c.ID)
	}
	if err := c.Complete(); err != nil {
		return err
	}
	c.keys, _ = c.newKeys(logger, c.Transport) // as Complete made them, and with a logger
	if c.guessable {
		logger.Warn("client secret has less than 128 bits, and could be guessed; make another with: "+secretCommand, "client_id", c.ID)
	}
	c.granted = new(grantedScopes)
	r.configured[c.ID] = &c
	return nil
}
