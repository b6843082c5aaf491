package providertest

import "net/http"

// ServeHTTP implements http.Handler.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e := Endpoint(r.URL.Path)
	// Also needed for faults: only after the body does the server notice that
	// a client has gone.
	if err := r.ParseForm(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	p.requests[e] = append(p.requests[e], Request{Method: r.Method, Header: r.Header.Clone(), Form: r.Form})
	fault := p.faults[e]
	p.mu.Unlock()
	if fault != nil {
		fault(w, r)
		return
	}
	serve := map[Endpoint]http.HandlerFunc{
		Discovery: p.discovery, Keys: p.keys, Authorization: p.authorize,
		Token: p.token, UserInfo: p.userinfo, EndSession: p.endSession, Revocation: p.revoke, Introspection: p.introspect,
	}[e]
	if serve == nil {
		serve = http.NotFound
	}
	serve(w, r)
}
