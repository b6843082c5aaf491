package authorize

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"time"
)

// signInTime is how long a sign-in page can be used. It holds no secret; the
// bound is there so that a page left open does not lead into an app that has
// long forgotten its request.
const signInTime = time.Hour

var errPageExpired = invalidRequest("This sign-in page is too old, or was opened in another browser. Go back to the app and sign in from there again.")

// askToSignIn sends the browser to the sign-in page with its request sealed.
func (s *Server) askToSignIn(w http.ResponseWriter, r *http.Request, req *authorizationRequest) {
	sealed, err := s.keys.seal(r.Context(), r.URL.RawQuery, s.browser(w, r))
	if err != nil {
		s.redirectError(w, r, req, err)
		return
	}
	w.Header().Set("Location", pathLogin+"?request="+url.QueryEscape(sealed))
	w.WriteHeader(http.StatusFound)
}

// login is the sign-in page: GET shows it, POST takes what was typed.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	p, err := loginParameters(w, r)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	req, err := s.pending(r, p.get("request"))
	switch {
	case req == nil:
		s.refuse(w, r, err)
	case err != nil:
		s.redirectError(w, r, req, err)
	case r.Method == http.MethodPost:
		s.signIn(w, r, req, p)
	default:
		s.showSignIn(w, r, http.StatusOK, req, signInPage{Request: p.get("request")})
	}
}

// loginParameters reads the page's address or the form it sends. The sealed
// request is longer than a parameter that others write may be; it need not be
// checked, because what was not sealed here does not open.
func loginParameters(w http.ResponseWriter, r *http.Request) (p parameters, err error) {
	if r.Method == http.MethodPost {
		p, err = readForm(w, r)
	} else {
		var values url.Values
		values, err = url.ParseQuery(r.URL.RawQuery)
		p = parameters(values)
	}
	if err != nil {
		return nil, err
	}
	typed := maps.Clone(p)
	delete(typed, "request")
	return p, typed.check()
}

// pending opens a sealed request and checks it again from scratch: the
// configuration may have changed while the page was open.
func (s *Server) pending(r *http.Request, sealed string) (*authorizationRequest, error) {
	cookie, err := r.Cookie(browserCookie)
	if err != nil || sealed == "" {
		return nil, errPageExpired
	}
	query, err := s.keys.unseal(r.Context(), sealed, cookie.Value, signInTime)
	if errors.Is(err, errUnsealed) {
		return nil, errPageExpired
	}
	if err != nil {
		return nil, err
	}
	return s.authorizationRequest(query)
}

func (s *Server) signIn(w http.ResponseWriter, r *http.Request, req *authorizationRequest, p parameters) {
	signedIn, err := s.startedSession(w, r, p)
	switch {
	case errors.Is(err, errWrongPassword):
		s.logger.InfoContext(r.Context(), "sign-in refused", "client_id", req.client.ID)
		page := signInPage{Request: p.get("request"), Username: p.get("username"), Wrong: true}
		s.showSignIn(w, r, http.StatusForbidden, req, page)
	case errors.Is(err, context.Canceled): // nobody is there any more
	case err != nil:
		s.redirectError(w, r, req, err)
	default:
		s.logger.InfoContext(r.Context(), "signed in", "user", signedIn.user.ID, "client_id", req.client.ID)
		s.answer(w, r, req, signedIn)
	}
}

func (s *Server) startedSession(w http.ResponseWriter, r *http.Request, p parameters) (*signedIn, error) {
	user, err := s.directory.signIn(r.Context(), p.get("username"), p.get("password"))
	if err != nil {
		return nil, err
	}
	return s.startSession(w, r, user)
}
