package enforce

import (
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// call is a request in parts: the client's, an entry of a batch, or one of our own.
type call struct {
	method string
	path   string // below the FHIR base, without a leading slash
	query  string
	header http.Header // those that speak of the call: If-Match, If-None-Exist, Prefer, Content-Type …
	body   []byte
}

// get is a call that only asks.
func get(path, query string) call { return call{method: http.MethodGet, path: path, query: query} }

// searchPath is the path of a search without what a search by POST adds to it.
func (c call) searchPath() string {
	return strings.TrimSuffix(strings.TrimSuffix(c.path, "_search"), "/")
}

// interaction tells what a call does. A search by POST has its form among its parameters.
func (c call) interaction() (interaction.Interaction, error) {
	i, err := interaction.Parse(c.method, c.path, c.query, c.header)
	if err == nil && strings.HasSuffix(c.path, "_search") && c.body != nil {
		i, err = i.WithForm(string(c.body))
	}
	if err != nil {
		status := interaction.Status(err)
		return i, &guard.Error{Status: status, Description: sentence(err), Err: err}
	}
	return i, nil
}

// sentence is an error as clients read it. The errors of package interaction hold no part of the request.
func sentence(err error) string {
	text := err.Error()
	return strings.ToUpper(text[:1]) + text[1:] + "."
}
