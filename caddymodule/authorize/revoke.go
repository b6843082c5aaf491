package authorize

import (
	"errors"
	"net/http"
	"time"
)

var errForeignToken = &Error{Code: "unauthorized_client", Description: "the token was given to another client"}

// revocation is the revocation endpoint (RFC 7009). A token that is not valid
// needs no revoking, so it is no error; that a revocation could not be stored is
// one, because the token would go on working.
func (s *Server) revocation(w http.ResponseWriter, r *http.Request) {
	if err := s.revokeToken(w, r); err != nil {
		s.record(r.Context(), Event{Kind: EventRevocation, Err: err})
		s.writeError(w, r, err)
		return
	}
	w.Header().Set("Pragma", "no-cache")
	w.WriteHeader(http.StatusOK)
}

func (s *Server) revokeToken(w http.ResponseWriter, r *http.Request) error {
	claims, client, err := s.askedToken(w, r)
	switch {
	case errors.Is(err, errInvalidToken):
		return nil
	case err != nil:
		return err
	case claims.ClientID != client.ID:
		return errForeignToken
	}
	err = s.revoke(r.Context(), claims.ID, time.Until(claims.Expiry.Time()))
	if err == nil {
		s.record(r.Context(), Event{Kind: EventRevocation, ClientID: client.ID, User: claims.Subject})
	}
	return err
}

// askedToken authenticates the client of a request about a token, and reads the
// token: errInvalidToken where it is not one of ours that is valid.
func (s *Server) askedToken(w http.ResponseWriter, r *http.Request) (*accessTokenClaims, *Client, error) {
	p, err := formParameters(w, r)
	if err != nil {
		return nil, nil, err
	}
	s.noteNamedClient(r, p)
	client, err := s.authenticateClient(r, p)
	if err != nil {
		return nil, nil, err
	}
	if p.get("token") == "" {
		return nil, nil, invalidRequest("token is missing")
	}
	claims, err := s.verify(r.Context(), p.get("token"))
	return claims, client, err
}
