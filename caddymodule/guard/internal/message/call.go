package message

import (
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// Call is a request in parts: the client's, an entry of a batch, or one of our own.
type Call struct {
	Method string      // the HTTP method
	Path   string      // below the FHIR base, without a leading slash
	Query  string      // without a question mark
	Header http.Header // those that speak of the call: If-Match, If-None-Exist, Prefer, Content-Type …
	Body   []byte      // nil if there is none
}

// Get is a call that only asks.
func Get(path, query string) Call { return Call{Method: http.MethodGet, Path: path, Query: query} }

// SearchPath is the path of a search without what a search by POST adds to it.
func (c Call) SearchPath() string {
	return strings.TrimSuffix(strings.TrimSuffix(c.Path, "_search"), "/")
}

// Interaction tells what a call does. A search by POST has its form among its parameters.
func (c Call) Interaction() (interaction.Interaction, error) {
	i, err := interaction.Parse(c.Method, c.Path, c.Query, c.Header)
	if err == nil && strings.HasSuffix(c.Path, "_search") && c.Body != nil {
		i, err = i.WithForm(string(c.Body))
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
