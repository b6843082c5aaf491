package enforce

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// reserver reserves memory for what is read.
type reserver interface {
	Reading(ctx context.Context, body io.Reader) io.Reader
}

// client is the client's own request.
type client struct {
	r      *http.Request
	base   string // path of the FHIR API
	limit  int64  // of the body
	memory reserver
}

// call is the request without its body.
func (x client) call() (message.Call, error) {
	path, ok := strings.CutPrefix(x.r.URL.Path, x.base)
	if !ok || path != "" && path[0] != '/' {
		return message.Call{}, message.NotFound()
	}
	if path == "/" {
		path = ""
	}
	return message.Call{Method: x.r.Method, Path: strings.TrimPrefix(path, "/"), Query: x.r.URL.RawQuery, Header: x.r.Header}, nil
}

// withBody is a call with the client's body: the form of a search is among its parameters, and the content of a Binary is
// one.
func (x client) withBody(c message.Call, i interaction.Interaction) (_ message.Call, _ interaction.Interaction, err error) {
	if c.Method == http.MethodGet || c.Method == http.MethodHead || x.r.Body == nil || x.r.Body == http.NoBody {
		return c, i, nil
	}
	if c.Body, err = x.readBody(c, i); err != nil {
		return c, i, err
	}
	if isContent(c.Header, i) {
		c, err = binary(c, i, x.limit)
		return c, i, err
	}
	i, err = c.Interaction()
	return c, i, err
}

// readBody reads the client's body, in JSON, as a form, or as the content of a Binary, up to the limit.
func (x client) readBody(c message.Call, i interaction.Interaction) ([]byte, error) {
	if e := x.r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return nil, &guard.Error{Status: http.StatusUnsupportedMediaType, Description: "Send the body without compression.", Err: message.ErrBody}
	}
	body, err := io.ReadAll(x.memory.Reading(x.r.Context(), x.r.Body))
	refusal, refused := errors.AsType[*guard.Error](err)
	switch {
	case refused:
		return nil, refusal
	case err != nil:
		return nil, message.Invalid(err, "The body could not be read.")
	case int64(len(body)) > x.limit:
		return nil, &guard.Error{Status: http.StatusRequestEntityTooLarge, Description: fmt.Sprintf("The body is longer than %d bytes.", x.limit), Err: message.ErrBody}
	case len(body) > 0 && !x.readable(c) && strings.HasSuffix(c.Path, "_search"):
		return nil, &guard.Error{Status: http.StatusUnsupportedMediaType, Description: "Send the search as application/x-www-form-urlencoded.", Err: message.ErrBody}
	case len(body) > 0 && !x.readable(c) && !isContent(c.Header, i):
		return nil, &guard.Error{Status: http.StatusUnsupportedMediaType, Description: "Send the body as application/fhir+json.", Err: message.ErrBody}
	}
	return body, nil
}

// readable reports whether we can read a body of its media type.
func (x client) readable(c message.Call) bool {
	media, parameters, err := mime.ParseMediaType(x.r.Header.Get("Content-Type"))
	if charset := parameters["charset"]; err != nil || charset != "" && !strings.EqualFold(charset, "utf-8") {
		return false
	}
	if strings.HasSuffix(c.Path, "_search") {
		return media == "application/x-www-form-urlencoded"
	}
	return media == "application/json" || strings.HasSuffix(media, "+json")
}

// checkAnswerFormat refuses what is answered in no format that the client takes. A Binary is answered in its own, unless
// one of FHIR's is asked for.
func (x client) checkAnswerFormat(i interaction.Interaction) error {
	if isBinary(i) {
		format := message.FormatOf(i.Parameters)
		if format == "" && message.ParseAccept(x.r.Header).Fhir("") == 0 || format != "" && !message.IsFHIRFormat(format) {
			return nil
		}
	}
	return message.CheckFormat(x.r.Header, i.Parameters)
}

// isBinary reports whether an interaction reads a Binary.
func isBinary(i interaction.Interaction) bool {
	return i.Type == "Binary" && (i.Kind == interaction.Read || i.Kind == interaction.VRead)
}
