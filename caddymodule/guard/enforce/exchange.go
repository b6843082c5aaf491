package enforce

import (
	"bytes"
	"context"
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

// exchange is a client's request with the state for answering it.
type exchange struct {
	enforcer        *Enforcer
	bearer          Bearer
	request         *http.Request // the client's request
	server          fhirserver.Server
	judge           judge.Judge // judge of the request before policies are evaluated
	pages           paging.Pages
	rewriter        responseRewriter // rewrites the response if it is judged
	isBinaryContent bool             // the response is the unmodified content of a Binary
	isAborted       bool             // the response is incomplete and cannot be completed
}

// toCall returns the request as a call without its body.
func (x *exchange) toCall() (message.Call, error) {
	path, ok := strings.CutPrefix(x.request.URL.Path, x.enforcer.Base)
	if !ok || path != "" && path[0] != '/' {
		return message.Call{}, message.NotFound()
	}
	return message.Call{Method: x.request.Method, Path: strings.TrimPrefix(path, "/"), Query: x.request.URL.RawQuery, Header: x.request.Header}, nil
}

// withBody returns the call with the client's body. The form of a search becomes part of the parameters. The content of a
// Binary becomes a Binary resource.
func (x *exchange) withBody(c message.Call, i interaction.Interaction) (_ message.Call, _ interaction.Interaction, err error) {
	if c.Method == http.MethodGet || c.Method == http.MethodHead || x.request.Body == nil || x.request.Body == http.NoBody {
		return c, i, nil
	}
	if c.Body, err = x.readBody(c, i); err != nil {
		return c, i, err
	}
	if isBinaryContent(c.Header, i) {
		c, err = wrapInBinary(c, i, x.server.Limits.BodyBytes)
		return c, i, err
	}
	i, err = c.Interaction()
	return c, i, err
}

// readBody reads the client's body up to the size limit. The body is JSON, a form, or the content of a Binary.
func (x *exchange) readBody(c message.Call, i interaction.Interaction) ([]byte, error) {
	if e := x.request.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return nil, &guard.Error{Status: http.StatusUnsupportedMediaType, Description: "Send the body without compression.", Err: message.ErrInvalidBody}
	}
	body, err := io.ReadAll(x.server.LimitBody(x.request.Context(), x.request.Body))
	rejection, isRejection := errors.AsType[*guard.Error](err)
	switch {
	case isRejection:
		return nil, rejection
	case err != nil:
		return nil, message.InvalidRequest(err, "The body could not be read.")
	case int64(len(body)) > x.server.Limits.BodyBytes:
		return nil, &guard.Error{Status: http.StatusRequestEntityTooLarge, Description: fmt.Sprintf("The body exceeds %d bytes.", x.server.Limits.BodyBytes), Err: message.ErrInvalidBody}
	case len(body) > 0 && !hasParsableBody(c) && strings.HasSuffix(c.Path, "_search"):
		return nil, &guard.Error{Status: http.StatusUnsupportedMediaType, Description: "Send the search as application/x-www-form-urlencoded.", Err: message.ErrInvalidBody}
	case len(body) > 0 && !hasParsableBody(c) && !isBinaryContent(c.Header, i):
		return nil, &guard.Error{Status: http.StatusUnsupportedMediaType, Description: "Send the body as application/fhir+json.", Err: message.ErrInvalidBody}
	}
	return body, nil
}

// hasParsableBody reports whether the media type of the body is one that the gateway can parse.
func hasParsableBody(c message.Call) bool {
	media, parameters, err := mime.ParseMediaType(c.Header.Get("Content-Type"))
	if charset := parameters["charset"]; err != nil || charset != "" && !strings.EqualFold(charset, "utf-8") {
		return false
	}
	if strings.HasSuffix(c.Path, "_search") {
		return media == "application/x-www-form-urlencoded"
	}
	return media == "application/json" || strings.HasSuffix(media, "+json")
}

// acceptsBinaryContent reports whether a Binary may be returned as its content, because the client requests no FHIR format.
func acceptsBinaryContent(header http.Header, i interaction.Interaction) bool {
	format := message.FormatParameter(i.Parameters)
	return readsBinary(i) && (format == "" && message.ParseAccept(header).FHIRWeight("") == 0 || format != "" && !message.IsFHIRFormat(format))
}

// readsBinary reports whether an interaction reads a Binary.
func readsBinary(i interaction.Interaction) bool {
	return i.Type == "Binary" && (i.Kind == interaction.Read || i.Kind == interaction.VRead)
}

// prefersBinaryContent reports whether a Binary was read and the client prefers its content: _format or, without it, the Accept
// header contains no FHIR format, or Accept assigns it a lower weight (R4 binary.html#rest).
func prefersBinaryContent(header http.Header, i interaction.Interaction, a *message.Response) bool {
	if a.Status != http.StatusOK {
		return false
	}
	if format := message.FormatParameter(i.Parameters); format != "" {
		return !message.IsFHIRFormat(format)
	}
	accepted := message.ParseAccept(header)
	own := mediaType(binaryContentType(a))
	fhirWeight := accepted.FHIRWeight(own)
	return fhirWeight == 0 || accepted[own] > fhirWeight
}

// binaryContentType returns contentType of a Binary.
func binaryContentType(a *message.Response) string {
	res, err := resource.Parse(a.Body)
	if err != nil {
		return ""
	}
	value, _ := res.Member("contentType")
	return resource.Text(value)
}

// mediaType returns the media type in contentType without its parameters; empty if invalid.
func mediaType(contentType string) string {
	media, _, _ := mime.ParseMediaType(contentType)
	return media
}

// decodeContent returns the response with the decoded data of its Binary as the body.
func decodeContent(a *message.Response) (*message.Response, error) {
	res, err := resource.Parse(a.Body)
	if err != nil {
		return nil, message.NewWithheldError(err)
	}
	value, _ := res.Member("data")
	data, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(resource.Text(value)), ""))
	if err != nil {
		return nil, message.NewWithheldError(fmt.Errorf("decoding Binary.data: %w", err))
	}
	header := maps.Clone(a.Header)
	setContentHeaders(header, binaryContentType(a))
	return &message.Response{Status: a.Status, Header: header, Body: data, Buffer: a.Buffer}, nil
}

// setContentHeaders sets the headers for the content of a Binary. Content can have any type, so browsers must not execute it in
// the API's origin.
func setContentHeaders(header http.Header, kind string) {
	if mediaType(kind) == "" || strings.ContainsFunc(kind, func(r rune) bool { return r < ' ' || r > '~' }) {
		kind = "application/octet-stream"
	}
	header.Set("Content-Type", kind)
	header.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Add("Vary", "Accept")
}

// isBinaryContent reports whether a body is the content of a Binary, i.e. its media type is not a FHIR format.
func isBinaryContent(header http.Header, i interaction.Interaction) bool {
	media := mediaType(header.Get("Content-Type"))
	return i.Type == "Binary" && strings.Contains(media, "/") && !message.FHIRMediaTypes[media] && slices.Contains(contentKinds, i.Kind)
}

var contentKinds = []interaction.Kind{interaction.Create, interaction.ConditionalCreate, interaction.Update, interaction.ConditionalUpdate}

var errSecurityContext = errors.New("more than one X-Security-Context header")

// wrapInBinary wraps content in a Binary, with the X-Security-Context header as its securityContext (R4 binary.html#rest). The
// Binary is then judged as if the client had sent it.
func wrapInBinary(c message.Call, i interaction.Interaction, limit int64) (message.Call, error) {
	contexts := c.Header.Values("X-Security-Context")
	switch {
	case len(contexts) > 1:
		return c, message.InvalidRequest(errSecurityContext, "Send the X-Security-Context header only once.")
	case int64(base64.StdEncoding.EncodedLen(len(c.Body))) > limit:
		return c, &guard.Error{
			Status: http.StatusRequestEntityTooLarge, Err: message.ErrInvalidBody,
			Description: fmt.Sprintf("The content exceeds %d bytes in base64.", limit),
		}
	}
	var b bytes.Buffer
	b.WriteString(`{"resourceType":"Binary"`)
	if i.Kind == interaction.Update {
		b.WriteString(`,"id":` + message.QuoteJSON(i.ID))
	}
	b.WriteString(`,"contentType":` + message.QuoteJSON(c.Header.Get("Content-Type")))
	if len(contexts) == 1 {
		b.WriteString(`,"securityContext":{"reference":` + message.QuoteJSON(contexts[0]) + `}`)
	}
	b.WriteString(`,"data":"` + base64.StdEncoding.EncodeToString(c.Body) + `"}`)
	c.Body, c.Header = b.Bytes(), maps.Clone(c.Header)
	c.Header.Set("Content-Type", message.TypeJSON)
	return c, nil
}

// serveContent answers the read of a Binary with its content. It judges the Binary without its data and then streams the
// content from the FHIR server, whatever its size. If the FHIR server does not return the content of the judged version,
// serveContent reads the Binary as FHIR JSON and judges it with its data.
func (x *exchange) serveContent(ctx context.Context, w http.ResponseWriter, c message.Call, i interaction.Interaction) (_ *message.Response, err error) {
	ctx, done := x.startJudging(ctx, i)
	defer func() { done(err) }()
	of, err := x.handlerBeforePolicies().forCall(ctx, c, i)
	if err != nil {
		return nil, err
	}
	handler := of.readHandler()
	meta, res, err := handler.JudgeBinary(ctx, c, i)
	if err != nil {
		return nil, err
	}
	etag := meta.Header.Get("Etag")
	if message.IsNotModified(x.request.Header, etag) {
		return &message.Response{Status: http.StatusOK, Header: http.Header{"Etag": {etag}}}, nil
	}
	p := contentWriter{ResponseWriter: w, etag: etag, contentETag: etag, contentType: binaryContentType(meta), securityContext: securityContextOf(res)}
	if sent, err := p.forward(ctx, x, message.Call{Method: c.Method, Path: c.Path}); sent || err != nil {
		return nil, err
	}
	a, err := handler.Read(ctx, c, i)
	if err != nil {
		return nil, err
	}
	hash := externalContentHash(a)
	switch {
	case hash == "":
		return decodeContent(a)
	case of.judge.DependsOnBinaryData(): // the data has not been judged
		return nil, message.NotFound()
	}
	p.etag, p.contentETag = a.Header.Get("Etag"), `"`+hash+`"`
	sent, err := p.forward(ctx, x, message.Call{Method: c.Method, Path: c.Path + "/$binary-access-read", Query: "path=Binary"})
	if !sent && err == nil {
		err = message.NewWithheldError(errUnexpectedContent)
	}
	return nil, err
}

// externalContentHash returns the SHA-256 hash of content that HAPI stores outside of its Binary because it exceeds 10 MB, and
// returns only from the operation $binary-access-read. It is empty if the Binary contains its content.
func externalContentHash(a *message.Response) string {
	res, err := resource.Parse(a.Body)
	if _, hasData := res.Member("data"); err != nil || hasData {
		return ""
	}
	data, _ := res.Member("_data")
	extensions, _ := resource.Field(data, "extension")
	for extension := range resource.Elements(extensions) {
		if url, _ := resource.Field(extension, "url"); resource.Text(url) == "http://hapifhir.io/fhir/StructureDefinition/externalized-binary-hash-sha256" {
			value, _ := resource.Field(extension, "valueString")
			return resource.Text(value)
		}
	}
	return ""
}

// securityContextOf returns the reference in the securityContext of a Binary.
func securityContextOf(res resource.Resource) string {
	element, _ := res.Member("securityContext")
	reference, _ := resource.Field(element, "reference")
	return resource.Text(reference)
}

// contentWriter forwards the content of a Binary to the client if the content belongs to the judged version.
type contentWriter struct {
	http.ResponseWriter             // the response to the client
	header              http.Header // header of the FHIR server's response
	etag                string      // ETag of the judged version; empty if unknown
	contentETag         string      // expected ETag of the content of that version
	contentType         string      // media type of that version
	securityContext     string      // reference in securityContext of that version
	headerSent          bool        // the header has been sent to the client
	rejection           error       // why the response is not the expected content
}

// contentRequestHeaders are the client's headers that select a part of the content (RFC 9110 §14.2).
var contentRequestHeaders = []string{"Range", "If-Range"}

// contentHeaders are the FHIR server's response headers that describe the content.
var contentHeaders = []string{
	"Accept-Ranges", "Cache-Control", "Content-Disposition", "Content-Length", "Content-Range", "Last-Modified", "X-Security-Context",
}

// forward requests the content from the FHIR server and reports whether the client gets it. It sends no request if the version
// is unknown, because the content could not be matched with the judged Binary, or if the content is in a FHIR format, because
// it could not be distinguished from the Binary resource itself.
func (p contentWriter) forward(ctx context.Context, x *exchange, c message.Call) (sent bool, err error) {
	if p.etag == "" || p.contentETag == "" || message.FHIRMediaTypes[mediaType(p.contentType)] {
		return false, nil
	}
	p.header = http.Header{}
	call := message.Call{Method: c.Method, Path: c.Path, Query: c.Query, Header: http.Header{}}
	for _, name := range contentRequestHeaders {
		if values := x.request.Header[name]; len(values) > 0 {
			call.Header[name] = values
		}
	}
	err = func() error {
		defer func() { message.RepanicUnlessAborted(recover(), p.rejection) }()
		return x.server.Stream(ctx, call, []string{contentAccept}, &p)
	}()
	if p.rejection != nil {
		return false, nil
	}
	return p.headerSent, err
}

// contentAccept requests the content of a Binary in any format. It contains no type that a FHIR server could interpret as a
// FHIR format, as HAPI does with application/xml.
const contentAccept = "application/octet-stream, */*;q=0.1"

var errUnexpectedContent = errors.New("response is not the content of the checked Binary version")

// Header implements http.ResponseWriter.
func (p *contentWriter) Header() http.Header { return p.header }

// WriteHeader implements http.ResponseWriter.
func (p *contentWriter) WriteHeader(status int) {
	if p.headerSent || p.rejection != nil || status < http.StatusOK {
		return
	}
	if !p.isExpectedContent(status) {
		p.rejection = errUnexpectedContent
		return
	}
	p.headerSent = true
	header := p.ResponseWriter.Header()
	for _, name := range contentHeaders {
		if values := p.header[name]; len(values) > 0 {
			header[name] = values
		}
	}
	header.Set("Etag", p.etag)
	setContentHeaders(header, p.contentType)
	p.ResponseWriter.WriteHeader(status)
}

// isExpectedContent reports whether a response is the content of the judged version.
func (p *contentWriter) isExpectedContent(status int) bool {
	a := message.Response{Status: status, Header: p.header}
	media := mediaType(p.header.Get("Content-Type"))
	context := p.header.Get("X-Security-Context")
	return (status == http.StatusOK || status == http.StatusPartialContent) &&
		message.IsNotModified(http.Header{"If-None-Match": {p.contentETag}}, p.header.Get("Etag")) &&
		!a.IsJSON() && !message.FHIRMediaTypes[media] && p.header.Get("Content-Encoding") == "" &&
		(context == "" || context == p.securityContext || strings.HasSuffix(context, "/"+p.securityContext) && p.securityContext != "")
}

// Write implements http.ResponseWriter. Its error makes the next handler stop reading from the FHIR server.
func (p *contentWriter) Write(b []byte) (int, error) {
	p.WriteHeader(http.StatusOK)
	if p.rejection != nil {
		return 0, p.rejection
	}
	return p.ResponseWriter.Write(b)
}

// FlushError flushes the content.
func (p *contentWriter) FlushError() error {
	if !p.headerSent {
		return nil
	}
	return http.NewResponseController(p.ResponseWriter).Flush()
}
