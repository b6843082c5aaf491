package flow

import (
	"encoding/base64"
	"maps"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/strictjson"
)

// withUnverified adds response_mode and state of a request object (OpenID Connect Core §6.1)
// that is refused, so that the error arrives where the client waits for it. Nobody has verified
// the object, so nothing else in it counts, and these two for the error alone.
func withUnverified(p oauth2.Parameters) oauth2.Parameters {
	_, rest, _ := strings.Cut(p.Get("request"), ".")
	payload, _, _ := strings.Cut(rest, ".")
	text, err := base64.RawURLEncoding.DecodeString(payload)
	var claims struct {
		Mode  string `json:"response_mode"`
		State string `json:"state"`
	}
	if err != nil || strictjson.Unmarshal(text, &claims) != nil {
		return p
	}
	p = maps.Clone(p)
	for name, value := range map[string]string{"response_mode": claims.Mode, "state": claims.State} {
		if len(p[name]) == 0 && value != "" {
			p[name] = []string{value}
		}
	}
	return p
}
