package authorize

import "context"

// client returns a client by its client_id, or nil where there is none: of those
// in the configuration, or else of those that registered themselves.
func (s *Server) client(ctx context.Context, id string) (*Client, error) {
	if c := s.clients[id]; c != nil || s.registrar == nil {
		return c, nil
	}
	c, err := s.registrar.load(ctx, id)
	if c == nil || err != nil {
		return nil, err
	}
	return &c.Client, nil
}
