package authorize

import (
	"errors"
	"net/http"
)

// introspection is what a client is told of a token (RFC 7662 §2.2, SMART App
// Launch 2.2, Token Introspection). Of one that is not valid, or not for this
// client to know of, it is told that and nothing else.
type introspection struct {
	Active    bool   `json:"active"`
	TokenType string `json:"token_type,omitempty"`
	*accessTokenClaims
}

// introspect is the introspection endpoint (RFC 7662). It is for clients with a
// secret: whoever can ask can try tokens.
func (s *Server) introspect(w http.ResponseWriter, r *http.Request) {
	claims, client, err := s.askedToken(w, r)
	switch {
	case client != nil && client.Public():
		s.writeError(w, r, invalidClient("introspection is for clients with a secret"))
	case errors.Is(err, errInvalidToken), err == nil && claims.ClientID != client.ID && !client.IntrospectAll:
		s.writeJSON(w, http.StatusOK, introspection{})
	case err != nil:
		s.writeError(w, r, err)
	default:
		s.writeJSON(w, http.StatusOK, introspection{Active: true, TokenType: "Bearer", accessTokenClaims: claims})
	}
}
