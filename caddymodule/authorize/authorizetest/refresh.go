package authorizetest

import (
	"crypto/rand"
	"net/http"
	"slices"
)

// refreshed redeems a refresh token (RFC 6749 §6) for tokens of the person as they are now.
func (p *Provider) refreshed(w http.ResponseWriter, s Settings, token string) {
	p.mu.Lock()
	g, ok := p.refresh[token]
	next := token
	if !s.KeepRefreshToken {
		delete(p.refresh, token)
		next = rand.Text()
	}
	p.mu.Unlock()
	i := slices.IndexFunc(s.People, func(now Person) bool { return now.Subject == g.person.Subject })
	if !ok || i < 0 {
		writeJSON(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant"})
		return
	}
	g.person, g.nonce = s.People[i], ""
	p.sendTokens(w, s, g, next)
}

// revoke forgets a refresh token (RFC 7009).
func (p *Provider) revoke(w http.ResponseWriter, r *http.Request) {
	if !p.current().authenticates(r) {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.refresh, r.PostForm.Get("token"))
}
