package enforce

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirserver"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/judge"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// exchange is a client's request on its way: what asks the FHIR server, what judges, and the interactions over both.
type exchange struct {
	e         *Enforcer
	bearer    Bearer
	r         *http.Request // the client's
	server    fhirserver.Server
	judge     judge.Judge // of the request, before policies
	pages     paging.Pages
	rewriting rewriting // of the response, if it is judged
	isContent bool      // the response is the content of a Binary, which stays as it is
	aborted   bool      // a part of the response was sent, and the rest cannot be
}

// call is the request without its body.
func (x *exchange) call() (message.Call, error) {
	path, ok := strings.CutPrefix(x.r.URL.Path, x.e.Base)
	if !ok || path != "" && path[0] != '/' {
		return message.Call{}, message.NotFound()
	}
	return message.Call{Method: x.r.Method, Path: strings.TrimPrefix(path, "/"), Query: x.r.URL.RawQuery, Header: x.r.Header}, nil
}

// withBody is a call with the client's body: the form of a search is among its parameters, and the content of a Binary is
// one.
func (x *exchange) withBody(c message.Call, i interaction.Interaction) (_ message.Call, _ interaction.Interaction, err error) {
	if c.Method == http.MethodGet || c.Method == http.MethodHead || x.r.Body == nil || x.r.Body == http.NoBody {
		return c, i, nil
	}
	if c.Body, err = x.readBody(c, i); err != nil {
		return c, i, err
	}
	if isContent(c.Header, i) {
		c, err = binary(c, i, x.server.Limits.Body)
		return c, i, err
	}
	i, err = c.Interaction()
	return c, i, err
}

// readBody reads the client's body, in JSON, as a form, or as the content of a Binary, up to the limit.
func (x *exchange) readBody(c message.Call, i interaction.Interaction) ([]byte, error) {
	if e := x.r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return nil, &guard.Error{Status: http.StatusUnsupportedMediaType, Description: "Send the body without compression.", Err: message.ErrBody}
	}
	body, err := io.ReadAll(x.server.Reading(x.r.Context(), x.r.Body))
	refusal, refused := errors.AsType[*guard.Error](err)
	switch {
	case refused:
		return nil, refusal
	case err != nil:
		return nil, message.Invalid(err, "The body could not be read.")
	case int64(len(body)) > x.server.Limits.Body:
		return nil, &guard.Error{Status: http.StatusRequestEntityTooLarge, Description: fmt.Sprintf("The body is longer than %d bytes.", x.server.Limits.Body), Err: message.ErrBody}
	case len(body) > 0 && !isReadable(c) && strings.HasSuffix(c.Path, "_search"):
		return nil, &guard.Error{Status: http.StatusUnsupportedMediaType, Description: "Send the search as application/x-www-form-urlencoded.", Err: message.ErrBody}
	case len(body) > 0 && !isReadable(c) && !isContent(c.Header, i):
		return nil, &guard.Error{Status: http.StatusUnsupportedMediaType, Description: "Send the body as application/fhir+json.", Err: message.ErrBody}
	}
	return body, nil
}

// isReadable reports whether we can read a body of its media type.
func isReadable(c message.Call) bool {
	media, parameters, err := mime.ParseMediaType(c.Header.Get("Content-Type"))
	if charset := parameters["charset"]; err != nil || charset != "" && !strings.EqualFold(charset, "utf-8") {
		return false
	}
	if strings.HasSuffix(c.Path, "_search") {
		return media == "application/x-www-form-urlencoded"
	}
	return media == "application/json" || strings.HasSuffix(media, "+json")
}

// takesContent reports whether a Binary may be answered in its own format: the client asks for none of FHIR's.
func takesContent(header http.Header, i interaction.Interaction) bool {
	format := message.FormatOf(i.Parameters)
	return isBinary(i) && (format == "" && message.ParseAccept(header).Fhir("") == 0 || format != "" && !message.IsFHIRFormat(format))
}

// isBinary reports whether an interaction reads a Binary.
func isBinary(i interaction.Interaction) bool {
	return i.Type == "Binary" && (i.Kind == interaction.Read || i.Kind == interaction.VRead)
}

// wantsContent reports whether an answer is a Binary of which the client wants the content in its own type: it names no
// format of FHIR's, or likes that type better (R4 binary.html#rest).
func wantsContent(header http.Header, i interaction.Interaction, a *message.Answer) bool {
	if a.Status != http.StatusOK {
		return false
	}
	if format := message.FormatOf(i.Parameters); format != "" {
		return !message.IsFHIRFormat(format)
	}
	accepted := message.ParseAccept(header)
	own := mediaOf(contentType(a))
	wanted := accepted.Fhir(own)
	return wanted == 0 || accepted[own] > wanted
}

// contentType is what a Binary says that its content is.
func contentType(a *message.Answer) string {
	res, err := resource.Parse(a.Body)
	if err != nil {
		return ""
	}
	value, _ := res.Member("contentType")
	return resource.Text(value)
}

// mediaOf is a media type without parameters; empty if it is none.
func mediaOf(contentType string) string {
	media, _, _ := mime.ParseMediaType(contentType)
	return media
}

// content is the answer with what the Binary holds.
func content(a *message.Answer) (*message.Answer, error) {
	res, err := resource.Parse(a.Body)
	if err != nil {
		return nil, message.Withheld(err)
	}
	value, _ := res.Member("data")
	data, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(resource.Text(value)), ""))
	if err != nil {
		return nil, message.Withheld(fmt.Errorf("data of a Binary: %w", err))
	}
	header := maps.Clone(a.Header)
	setContent(header, contentType(a))
	return &message.Answer{Status: a.Status, Header: header, Body: data, Buffer: a.Buffer}, nil
}

// setContent describes the content of a Binary. It may be of any type, so no browser may run it here.
func setContent(header http.Header, kind string) {
	if mediaOf(kind) == "" || strings.ContainsFunc(kind, func(r rune) bool { return r < ' ' || r > '~' }) {
		kind = "application/octet-stream"
	}
	header.Set("Content-Type", kind)
	header.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Add("Vary", "Accept")
}

// isContent reports whether a body is the content of a Binary: of any type but FHIR's.
func isContent(header http.Header, i interaction.Interaction) bool {
	media := mediaOf(header.Get("Content-Type"))
	return i.Type == "Binary" && strings.Contains(media, "/") && !message.FhirMedia[media] && slices.Contains(contentKinds, i.Kind)
}

var contentKinds = []interaction.Kind{interaction.Create, interaction.ConditionalCreate, interaction.Update, interaction.ConditionalUpdate}

var errContext = errors.New("several security contexts")

// binary makes the Binary that a content stands for, with the header X-Security-Context as its securityContext (R4
// binary.html#rest). It is judged as if it had been sent so.
func binary(c message.Call, i interaction.Interaction, limit int64) (message.Call, error) {
	contexts := c.Header.Values("X-Security-Context")
	switch {
	case len(contexts) > 1:
		return c, message.Invalid(errContext, "The header X-Security-Context may be sent once.")
	case int64(base64.StdEncoding.EncodedLen(len(c.Body))) > limit:
		return c, &guard.Error{
			Status: http.StatusRequestEntityTooLarge, Err: message.ErrBody,
			Description: fmt.Sprintf("The content is longer than %d bytes in base64.", limit),
		}
	}
	var b bytes.Buffer
	b.WriteString(`{"resourceType":"Binary"`)
	if i.Kind == interaction.Update {
		b.WriteString(`,"id":` + message.Quoted(i.ID))
	}
	b.WriteString(`,"contentType":` + message.Quoted(c.Header.Get("Content-Type")))
	if len(contexts) == 1 {
		b.WriteString(`,"securityContext":{"reference":` + message.Quoted(contexts[0]) + `}`)
	}
	b.WriteString(`,"data":"` + base64.StdEncoding.EncodeToString(c.Body) + `"}`)
	c.Body, c.Header = b.Bytes(), maps.Clone(c.Header)
	c.Header.Set("Content-Type", message.TypeJSON)
	return c, nil
}
