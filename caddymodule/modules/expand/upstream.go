package expand

import (
	"fmt"
	"maps"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/terminology/remote"
)

// Upstream is a FHIR terminology server. It is sent its own credentials and never those of a user.
type Upstream struct {
	// The FHIR base URL: https, or http on loopback. Required.
	URL string `json:"url,omitempty"`

	// Accept http elsewhere too: requests, answers and credentials can then be read and changed on the way. Default:
	// false.
	AllowHTTP bool `json:"allow_http,omitempty"`

	// How long its answers are fresh, whatever their headers say but `no-store`; at most the `ttl` of `fhir_expand`. For a
	// server that says `no-cache` of all, such as another gateway. Default: its headers count.
	TTL caddy.Duration `json:"ttl,omitempty"`

	// A bearer token to authenticate with (RFC 6750). Not together with a user name. Placeholders are supported.
	// Default: none.
	Bearer string `json:"bearer,omitempty"`

	// A user name to authenticate with (RFC 7617). Placeholders are supported. Default: none.
	Username string `json:"username,omitempty"`

	// The password for it. Placeholders are supported. Default: none.
	Password string `json:"password,omitempty"`

	option.TLS
}

// UpstreamRoute sends requests about some code systems to a server of their own.
type UpstreamRoute struct {
	// A prefix of the canonical URLs of code systems and value sets, such as `http://snomed.info/sct`. It matches
	// whole parts of a URL only. Required.
	Prefix string `json:"prefix,omitempty"`

	// The terminology server.
	Upstream
}

// Server makes the server. It also returns the resolved secrets and the certificate authorities, so that a change of
// either makes another server.
func (u *Upstream) Server(c *Caching) (_ *remote.Server, secrets string, err error) {
	o := remote.Options{
		Base: u.URL, AllowHTTP: u.AllowHTTP, Timeout: time.Duration(c.Timeout), MaxAnswer: c.maxAnswer(), TTL: time.Duration(u.TTL),
	}
	for _, secret := range []struct {
		option, text string
		to           *string
	}{{"bearer", u.Bearer, &o.Bearer}, {"basic", u.Username, &o.Username}, {"basic", u.Password, &o.Password}} {
		if *secret.to, err = option.ResolveSecret(secret.option, secret.text); err != nil {
			return nil, "", fmt.Errorf("upstream %s: %w", u.URL, err)
		}
		secrets += fmt.Sprintf("%q", *secret.to)
	}
	authorities, err := u.Authorities()
	if err == nil {
		o.TLS, err = u.TLS.Config(authorities)
	}
	if err != nil {
		return nil, "", fmt.Errorf("upstream %s: %w", u.URL, err)
	}
	server, err := remote.NewServer(o)
	return server, secrets + fmt.Sprintf("%q", authorities), err
}

// parse reads what follows an upstream's URL.
func (u *Upstream) parse(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		return d.ArgErr()
	}
	fields := option.Block{
		"ttl":        option.Duration(&u.TTL),
		"bearer":     option.Word(&u.Bearer, option.CheckPlaceholders),
		"basic":      option.Two(&u.Username, &u.Password),
		"allow_http": option.Bareword(&u.AllowHTTP),
	}
	maps.Copy(fields, u.TLS.Subdirectives())
	if err := fields.Parse(d); err != nil {
		return err
	}
	_, err := remote.NewServer(remote.Options{Base: u.URL, AllowHTTP: u.AllowHTTP, Bearer: u.Bearer, Username: u.Username})
	return option.WithLine(d, err)
}
