package authorize

import "net/http"

// SetNoticeTransport has clients told of sign-outs without a network.
func (s *Server) SetNoticeTransport(t http.RoundTripper) { s.notices.client.Transport = t }
