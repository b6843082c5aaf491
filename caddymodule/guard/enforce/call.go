package enforce

import (
	"errors"
	"fmt"
	"io"
	"mime"
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

// clientCall is the client's request without its body.
func (x *backend) clientCall() (call, error) {
	path, ok := strings.CutPrefix(x.r.URL.Path, x.Base)
	if !ok || path != "" && path[0] != '/' {
		return call{}, notFound()
	}
	if path == "/" {
		path = ""
	}
	return call{method: x.r.Method, path: strings.TrimPrefix(path, "/"), query: x.r.URL.RawQuery, header: x.r.Header}, nil
}

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

var errBody = errors.New("body cannot be judged")

// readBody reads the client's body, in JSON, as a form, or as the content of a Binary, up to the limit.
func (x *backend) readBody(c call, i interaction.Interaction) ([]byte, error) {
	if c.method == http.MethodGet || c.method == http.MethodHead || x.r.Body == nil || x.r.Body == http.NoBody {
		return nil, nil
	}
	if e := x.r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return nil, &guard.Error{Status: http.StatusUnsupportedMediaType, Description: "Send the body without compression.", Err: errBody}
	}
	left := x.limits.Body
	reserve := func(bytes int) error {
		defer func() { left -= int64(bytes) }()
		return x.reserve(x.r.Context(), bytes, left)
	}
	body, err := io.ReadAll(&reservingReader{io.LimitReader(x.r.Body, x.limits.Body+1), reserve})
	refusal, refused := errors.AsType[*guard.Error](err)
	switch {
	case refused:
		return nil, refusal
	case err != nil:
		return nil, invalid(err, "The body could not be read.")
	case int64(len(body)) > x.limits.Body:
		return nil, &guard.Error{Status: http.StatusRequestEntityTooLarge, Description: fmt.Sprintf("The body is longer than %d bytes.", x.limits.Body), Err: errBody}
	case len(body) > 0 && !x.readable(c) && strings.HasSuffix(c.path, "_search"):
		return nil, &guard.Error{Status: http.StatusUnsupportedMediaType, Description: "Send the search as application/x-www-form-urlencoded.", Err: errBody}
	case len(body) > 0 && !x.readable(c) && !x.isContent(i):
		return nil, &guard.Error{Status: http.StatusUnsupportedMediaType, Description: "Send the body as application/fhir+json.", Err: errBody}
	}
	return body, nil
}

// readable reports whether we can read a body of its media type.
func (x *backend) readable(c call) bool {
	media, parameters, err := mime.ParseMediaType(x.r.Header.Get("Content-Type"))
	if charset := parameters["charset"]; err != nil || charset != "" && !strings.EqualFold(charset, "utf-8") {
		return false
	}
	if strings.HasSuffix(c.path, "_search") {
		return media == "application/x-www-form-urlencoded"
	}
	return media == "application/json" || strings.HasSuffix(media, "+json")
}
