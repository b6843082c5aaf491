package authorize

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
)

// userinfo is the UserInfo endpoint (OpenID Connect Core §5.3).
func (s *Server) userinfo(w http.ResponseWriter, r *http.Request) {
	user, names, err := s.bearer(r)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	claims := s.personClaims(user, names)
	claims["sub"] = user.ID
	s.writeJSON(w, http.StatusOK, claims)
}

// bearer returns the person whose access token the request carries, and the claims
// that it is given for.
func (s *Server) bearer(r *http.Request) (*User, []string, error) {
	claims, err := s.bearerClaims(r)
	if err != nil {
		return nil, nil, err
	}
	return s.tokenUser(r.Context(), claims)
}

// bearerClaims are those of the access token that the request carries in its
// Authorization header (RFC 6750 §2.1).
func (s *Server) bearerClaims(r *http.Request) (*accessTokenClaims, error) {
	headers := r.Header.Values("Authorization")
	scheme, raw, _ := strings.Cut(strings.Join(headers, ", "), " ")
	switch {
	case !strings.EqualFold(scheme, "Bearer"):
		return nil, &Error{Status: http.StatusUnauthorized} // RFC 6750 §3.1: no code where no token came
	case len(headers) > 1 || len(raw) > maxParameter:
		return nil, invalidRequest("send one access token, as Authorization: Bearer")
	}
	claims, err := s.verify(r.Context(), strings.TrimLeft(raw, " "))
	if errors.Is(err, errInvalidToken) {
		err = invalidToken
	}
	return claims, err
}

var invalidToken = &Error{
	Code: "invalid_token", Status: http.StatusUnauthorized,
	Description: "the access token is expired, revoked or not one of this server",
}

func (s *Server) tokenUser(ctx context.Context, claims *accessTokenClaims) (*User, []string, error) {
	scope := strings.Fields(claims.Scope)
	if !slices.Contains(scope, "openid") {
		return nil, nil, &Error{
			Code: "insufficient_scope", Status: http.StatusForbidden,
			Description: "userinfo needs the scope openid",
		}
	}
	user, err := s.account(ctx, claims.Subject)
	if err == nil && user == nil {
		err = invalidToken
	}
	return user, append(claimsOfScope(scope), claims.UserinfoClaims...), err
}
